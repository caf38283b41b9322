//! Sandboxed WASM components.
