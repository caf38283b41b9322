//! The world `credential-provider`. It reuses the types that it shares with the other world.
//!
//! A host function returns the errors of its interface as `wasmtime::Error`, and `convert_*` takes
//! them out again. Any other error traps.

wasmtime::component::bindgen!({
    path: "../../wit",
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
    trappable_error_type: {
        "tollgate:plugin/secrets.secret-error" => wasmtime::Error,
        "tollgate:plugin/egress.egress-error" => wasmtime::Error,
        "tollgate:plugin/ambient.ambient-error" => wasmtime::Error,
    },
    with: {
        "tollgate:plugin/log": super::tollgate::plugin::log,
        "tollgate:plugin/clock": super::tollgate::plugin::clock,
        "tollgate:plugin/random": super::tollgate::plugin::random,
        "tollgate:plugin/secrets.secret": super::secret::Secret,
    },
});
