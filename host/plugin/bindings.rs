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

/// The world `credential-provider`. What it shares with the other world is the
/// same type.
pub(super) mod provider {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "credential-provider",
        imports: {
            "tollgate:plugin/egress.send": async | trappable,
            "tollgate:plugin/ambient.service-account-token": async | trappable,
            "tollgate:plugin/ambient.eks-pod-identity": async | trappable,
            "tollgate:plugin/ambient.gce-metadata-token": async | trappable,
            "tollgate:plugin/ambient.azure-imds-token": async | trappable,
            default: trappable,
        },
        exports: { default: async },
        with: {
            "tollgate:plugin/log": super::tollgate::plugin::log,
            "tollgate:plugin/clock": super::tollgate::plugin::clock,
            "tollgate:plugin/random": super::tollgate::plugin::random,
            "tollgate:plugin/secrets.secret": crate::plugin::provider::secret::Secret,
        },
    });
}

/// The world `generator`. Its imports are those of providers.
pub(super) mod generator {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "generator",
        imports: { default: trappable },
        exports: { default: async },
        with: {
            "tollgate:plugin/log": super::tollgate::plugin::log,
            "tollgate:plugin/clock": super::tollgate::plugin::clock,
            "tollgate:plugin/random": super::tollgate::plugin::random,
            "tollgate:plugin/provider-types": super::provider::tollgate::plugin::provider_types,
            "tollgate:plugin/secrets": super::provider::tollgate::plugin::secrets,
            "tollgate:plugin/egress": super::provider::tollgate::plugin::egress,
            "tollgate:plugin/json-path": super::provider::tollgate::plugin::json_path,
            "tollgate:plugin/crypto": super::provider::tollgate::plugin::crypto,
            "tollgate:plugin/ambient": super::provider::tollgate::plugin::ambient,
            "tollgate:plugin/memo": super::provider::tollgate::plugin::memo,
        },
    });
}
