//! Asking outside whether an operation took effect, rule by rule and fault by fault, in virtual time.

mod background;
mod faults;
mod request;
mod support;
