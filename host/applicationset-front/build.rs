//! Compiles the gRPC API's `.proto` files to one `FileDescriptorSet`, `grpc.bin`.

use std::error::Error;
use std::path::Path;

/// The gRPC API's files, found in [`PROTO_FOLDER`]; they name the others.
const PROTO_FILES: [&str; 3] = ["applicationset.proto", "session.proto", "version.proto"];
const PROTO_FOLDER: &str = "src/applicationsets/grpc/proto";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::var_os("OUT_DIR").ok_or("`OUT_DIR` is not set")?;
    println!("cargo:rerun-if-changed={PROTO_FOLDER}");
    let mut compiler = protox::Compiler::new([PROTO_FOLDER])?;
    compiler.include_imports(true).open_files(PROTO_FILES)?;
    let descriptors = compiler.encode_file_descriptor_set();
    std::fs::write(Path::new(&folder).join("grpc.bin"), descriptors)?;
    Ok(())
}
