//! Order of start-up.
fn main() {}
