//! The world `generator`. Its imports are those of providers.

wasmtime::component::bindgen!({
    path: "../../wit",
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
