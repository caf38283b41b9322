//! Makes the gateway wipe memory when it is freed: see `host/wipe.c`.
//!
//! In: the target. Out: `libwipe.a`, and the linker's orders for programs and
//! benches. Never: for tests, which would measure nothing by it.

fn main() {
    println!("cargo:rerun-if-changed=host/wipe.c");
    // Linkers of other systems have no `--wrap`.
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_none_or(|os| os != "linux") {
        return;
    }
    cc::Build::new()
        .file("host/wipe.c")
        .cargo_metadata(false)
        .compile("wipe");
    let Some(folder) = std::env::var_os("OUT_DIR") else {
        return;
    };
    let library = std::path::Path::new(&folder).join("libwipe.a");
    for kind in ["bins", "benches"] {
        println!("cargo:rustc-link-arg-{kind}=-Wl,--wrap=mi_free,--wrap=mi_realloc_aligned");
        println!("cargo:rustc-link-arg-{kind}={}", library.display());
    }
}
