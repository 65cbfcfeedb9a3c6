//! The consumer over the broker and the store in this process, in virtual time: minutes pass in moments.

mod drain;
mod faults;
mod lanes;
mod once;
mod retry;
mod support;
