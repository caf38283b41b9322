//! What is made before the gateway is compiled: the gRPC API's descriptors, and code
//! that wipes memory when it is freed (`host/wipe.c`).
//!
//! In: the target, `host/grpc/proto`. Out: `grpc.bin`; `libwipe.a`, and the linker's
//! orders for programs and benches. Never: wiping for tests, which would measure
//! nothing by it.

use std::error::Error;
use std::path::Path;

/// The gRPC API's files, found in [`PROTO_FOLDER`]; they name the others.
const PROTO_FILES: [&str; 3] = ["applicationset.proto", "session.proto", "version.proto"];
const PROTO_FOLDER: &str = "host/grpc/proto";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::var_os("OUT_DIR").ok_or("`OUT_DIR` is not set")?;
    descriptors(Path::new(&folder))?;
    wiping(Path::new(&folder));
    Ok(())
}

/// Writes what the `.proto` files say as one `FileDescriptorSet`.
fn descriptors(folder: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO_FOLDER}");
    let mut compiler = protox::Compiler::new([PROTO_FOLDER])?;
    compiler.include_imports(true).open_files(PROTO_FILES)?;
    std::fs::write(folder.join("grpc.bin"), compiler.encode_file_descriptor_set())?;
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
