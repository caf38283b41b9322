//! Compiles code that wipes memory when it is freed (`host/wipe.c`), and has programs and benches
//! linked with it. Tests are not: they would measure nothing by it.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::var_os("OUT_DIR").ok_or("`OUT_DIR` is not set")?;
    wiping(Path::new(&folder));
    Ok(())
}

fn wiping(folder: &Path) {
    println!("cargo:rerun-if-changed=host/wipe.c");
    // Linkers of other systems have no `--wrap`.
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_none_or(|os| os != "linux") {
        return;
    }
    cc::Build::new()
        .file("host/wipe.c")
        .cargo_metadata(false)
        .compile("wipe");
    let library = folder.join("libwipe.a");
    for kind in ["bins", "benches"] {
        println!("cargo:rustc-link-arg-{kind}=-Wl,--wrap=mi_free,--wrap=mi_realloc_aligned");
        println!("cargo:rustc-link-arg-{kind}={}", library.display());
    }
}
