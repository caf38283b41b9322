//! Lists the control plane's Events about an ApplicationSet the caller may see.
//!
//! Security: Events about other objects, or about an earlier set of the same name, are left out.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::applicationsets::request::{Error, Query};
use crate::applicationsets::{ApplicationSetHandler, ReadScope};
use tollgate_front::Denial;
use tollgate_state::write::{self, Writer};

const EVENTS: u32 = 500;

impl ApplicationSetHandler<'_, '_> {
    /// Lists the Events about a set. None if the state is a folder.
    pub(super) async fn events(&mut self, query: &Query) -> Result<Value, Denial> {
        let (name, existing) = self.read_visible(query, ReadScope::Projects).await?;
        let set = existing.set.ok_or_else(|| Error::not_found(&name))?;
        let cluster = match &self.writer {
            Writer::Folder(_) => return Ok(json!({ "metadata": {}, "items": [] })),
            Writer::Cluster(cluster) => cluster,
        };
        let uid = set.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let fields = format!(
            "involvedObject.name={},involvedObject.uid={uid},involvedObject.namespace={}",
            name.name, name.namespace
        );
        let events: Api<Event> = Api::namespaced(cluster.client.clone(), &name.namespace);
        let listed = events.list(&ListParams::default().fields(&fields).limit(EVENTS)).await;
        let listed = listed.map_err(|error| Error::State(write::cluster_error(&error)))?;
        Ok(json!({ "metadata": listed.metadata, "items": listed.items }))
    }
}
