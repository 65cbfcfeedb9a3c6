//! The caller's own transaction: what the engine decides about it, and a whole operation in one, over a database of
//! the smallest kind that has transactions.

mod database;
mod decision;
mod run;
mod whole;
