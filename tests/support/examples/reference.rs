//! Prints what `cargo xtask reference` cannot read from the program or from files.

fn main() {
    let facts = test_support::reference::facts();
    #[expect(clippy::print_stdout, reason = "it is a program")]
    {
        println!("{}", serde_json::to_string(&facts).unwrap());
    }
}
