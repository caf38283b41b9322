//! Builds the program that evaluates Rego with OPA and CEL with cel-go for the tests. It has OPA's
//! conformance suite in it. The Go module `tests/engines` pins the releases.
//!
//! Invariant: no text or code of OPA is in the checkout.

use std::path::Path;

use anyhow::Result;

use crate::go;
use xtask::cache::{ENGINES_MODULE, engines};

/// Builds the program unless it is there.
///
/// # Errors
/// Go is missing or too old, or the build fails.
pub fn build(root: &Path) -> Result<()> {
    go::program(&root.join(ENGINES_MODULE), &engines(root)?, ".", "-s -w")
}
