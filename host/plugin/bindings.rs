//! What `wit/` looks like from the host's side.
//!
//! In: `wit/`. Out: the types and calls of its worlds. Never: anything written by
//! hand.
//!
//! Imports may trap; exports are called with `await`, so that a guest gives its
//! worker back at every tick.

wasmtime::component::bindgen!({
    path: "wit",
    world: "header-filter",
    imports: { default: trappable },
    exports: { default: async },
});
