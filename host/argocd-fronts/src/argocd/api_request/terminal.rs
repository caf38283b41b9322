//! The terminal, which is a WebSocket and no method of gRPC.
//!
//! Source: Argo CD's `server/application/terminal.go`.

use crate::argocd::methods::{ApiMethod, FieldPath, MessageFields, Rest, RestBody, Verb};

/// What a request for the terminal is to policies. All its fields are in the query.
pub(super) static TERMINAL: ApiMethod = ApiMethod {
    service: "terminal",
    name: "Exec",
    rest: Rest {
        verb: Verb::Get,
        path: "/terminal",
        other_path: None,
        body: RestBody::None,
    },
    resource: "exec",
    action: "create",
    fields: MessageFields {
        project: Some(FieldPath::in_query("projectName")),
        application: Some(FieldPath::in_query("appName")),
        namespace: Some(FieldPath::in_query("appNamespace")),
        manifests: None,
        upsert: None,
        resource: None,
    },
};
