//! What a credential provider written in Rust needs.
//!
//! In: the gateway's calls. Out: credentials, as handles. Never: a secret's bytes.

#[cfg(all(feature = "arena", target_arch = "wasm32"))]
#[path = "../../src/arena.rs"]
mod arena;

/// What `wit-bindgen` makes of the world `credential-provider`.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "credential-provider",
        pub_export_macro: true,
        export_macro_name: "export_credential_provider",
        default_bindings_module: "tollgate_provider::bindings",
    });
}
