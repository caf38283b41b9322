//! Prints what `cargo xtask reference` cannot read from the program or from files.

fn main() -> Result<(), serde_json::Error> {
    let facts = serde_json::to_string(&test_support::reference::facts())?;
    #[expect(clippy::print_stdout, reason = "the task reads the output")]
    {
        println!("{facts}");
    }
    Ok(())
}
