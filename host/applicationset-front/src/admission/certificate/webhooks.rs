//! The webhook configurations that lead API servers to the gateway, and the authorities in them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Error, MANAGER, Scope, Target};
use tollgate_config::ManagedCertificate;

const GROUP: &str = "admissionregistration.k8s.io";

pub(super) struct Webhooks {
    kinds: Vec<(Api<DynamicObject>, ApiResource)>,
    namespace: String,
    settings: ManagedCertificate,
}

/// The configurations that exist, as they were read.
pub(super) struct Configurations(Vec<Configuration>);

struct Configuration {
    /// Which of [`Webhooks::kinds`].
    kind: usize,
    version: String,
    /// Name and authorities of each webhook that calls the gateway.
    webhooks: Vec<(String, String)>,
}

impl Webhooks {
    /// - `adds_authors`: whether there is a `MutatingWebhookConfiguration` as well.
    pub(super) fn new(client: &Client, namespace: &str, settings: &ManagedCertificate, adds_authors: bool) -> Self {
        let mut kinds = vec![resource(
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
        )];
        if adds_authors {
            kinds.push(resource(
                "MutatingWebhookConfiguration",
                "mutatingwebhookconfigurations",
            ));
        }
        let api = |resource| (Api::all_with(client.clone(), &resource), resource);
        Self {
            kinds: kinds.into_iter().map(api).collect(),
            namespace: namespace.to_owned(),
            settings: settings.clone(),
        }
    }

    fn name(&self) -> &str {
        &self.settings.webhook_configuration
    }

    fn target<'a>(&'a self, resource: &'a ApiResource) -> Target<'a> {
        Target {
            kind: &resource.kind,
            name: self.name(),
            scope: Scope::Cluster,
            group: GROUP,
            plural: &resource.plural,
            verbs: "get, patch",
        }
    }

    pub(super) async fn read(&self) -> Result<Configurations, Error> {
        let mut found = Vec::new();
        for (kind, (api, resource)) in self.kinds.iter().enumerate() {
            let object = self.target(resource).answer("read", api.get(self.name())).await?;
            // A configuration that does not exist calls nobody, so nothing has to be written to it.
            found.extend(object.map(|object| Configuration {
                kind,
                version: object.metadata.resource_version.unwrap_or_default(),
                webhooks: self.ours(&object.data),
            }));
        }
        Ok(Configurations(found))
    }

    /// The webhooks of a configuration that call the gateway's Service.
    fn ours(&self, configuration: &Value) -> Vec<(String, String)> {
        let webhooks = configuration.get("webhooks").and_then(Value::as_array);
        let text = |webhook: &Value, pointer: &str| {
            let value = webhook.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let ours = webhooks.into_iter().flatten().filter(|webhook| {
            text(webhook, "/clientConfig/service/namespace") == self.namespace
                && text(webhook, "/clientConfig/service/name") == self.settings.service
        });
        ours.map(|webhook| (text(webhook, "/name"), text(webhook, "/clientConfig/caBundle")))
            .collect()
    }

    /// Writes authorities where others stand. False if a configuration has changed since it was read.
    pub(super) async fn write(&self, found: &Configurations, authorities: &str) -> Result<bool, Error> {
        let bundle = STANDARD.encode(authorities);
        for configuration in &found.0 {
            let others = configuration.webhooks.iter().filter(|(_, present)| *present != bundle);
            let others: Vec<Value> = others
                .map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": bundle}}))
                .collect();
            let Some((api, resource)) = self.kinds.get(configuration.kind) else {
                continue;
            };
            if others.is_empty() {
                continue;
            }
            // `resourceVersion` makes the API server answer 409 if another replica has written since.
            let patch = json!({"metadata": {"resourceVersion": configuration.version}, "webhooks": others});
            let parameters = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            // Merges the list by the names of webhooks.
            let patch = Patch::Strategic(&patch);
            let patched = api.patch(self.name(), &parameters, &patch);
            if self.target(resource).answer("changed", patched).await?.is_none() {
                return Ok(false);
            }
            tracing::info!(
                kind = resource.kind,
                name = self.name(),
                "wrote the authorities of the admission webhook"
            );
        }
        Ok(true)
    }
}

impl Configurations {
    /// Whether all webhooks trust these authorities.
    pub(super) fn trust(&self, authorities: &str) -> bool {
        let mut webhooks = self.0.iter().flat_map(|configuration| &configuration.webhooks);
        webhooks.all(|(_, bundle)| {
            let decoded = STANDARD
                .decode(bundle)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok());
            // Not equal: the bundle has the authorities of two pairs during a renewal.
            decoded.is_some_and(|present| present.contains(authorities))
        })
    }
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{GROUP}/v1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}
