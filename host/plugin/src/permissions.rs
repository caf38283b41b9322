//! Computes what manifest and configuration together allow a provider to do for one cluster.
//! [`ResolvedPermissions`] are made once for each cluster, from [`ProviderPermissions`] and the
//! configuration.
//!
//! Security: permissions contain only hosts, secrets and fields that the manifest names.

use std::sync::Arc;

use http::HeaderName;
use serde_json::Value;
use url::Host;

use crate::egress_scope::{EgressScope, HostMatcher, HostTemplate, TextTemplate};
use tollgate_core::json_path::SingularPath;

#[derive(Clone, Debug, Default)]
pub(crate) struct ProviderPermissions {
    pub(crate) hosts: Vec<HostTemplate>,
    pub(crate) secrets: Vec<SecretPermission>,
    pub(crate) audiences: Vec<AudiencePermission>,
    /// Where values captured from responses may be sent, in addition to the credential.
    pub(crate) captures: Vec<CapturePermission>,
    /// Strings of responses it may read: RFC 9535 singular queries.
    pub(crate) visible: Vec<TextTemplate>,
    pub(crate) response_headers: Vec<HeaderName>,
    pub(crate) output_headers: Vec<HeaderName>,
}

#[derive(Clone, Debug)]
pub(crate) struct SecretPermission {
    /// Its name; `*` for all.
    pub(crate) name: String,
    /// Where it may be sent. `None` for every host of the manifest.
    pub(crate) hosts: Option<Vec<HostTemplate>>,
    pub(crate) cluster: bool,
    pub(crate) public: bool,
    /// Strings that the guest may read, if the value is a JSON document.
    pub(crate) public_fields: Vec<SingularPath>,
}

#[derive(Clone, Debug)]
pub(crate) struct AudiencePermission {
    pub(crate) audience: TextTemplate,
    pub(crate) hosts: Option<Vec<HostTemplate>>,
    pub(crate) cluster: bool,
}

/// The permitted use of values captured from a host's responses.
#[derive(Clone, Debug)]
pub(crate) struct CapturePermission {
    pub(crate) host: HostTemplate,
    pub(crate) hosts: Vec<HostTemplate>,
    pub(crate) cluster: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ResolvedPermissions {
    hosts: Arc<[HostMatcher]>,
    secrets: Vec<ResolvedSecret>,
    audiences: Vec<(String, EgressScope)>,
    captures: Vec<(HostMatcher, EgressScope)>,
    pub(crate) visible: Vec<SingularPath>,
    response_headers: Vec<HeaderName>,
    pub(crate) output_headers: Vec<HeaderName>,
}

#[derive(Clone, Debug)]
pub(crate) struct ResolvedSecret {
    name: String,
    pub(crate) egress_scope: EgressScope,
    pub(crate) public: bool,
    pub(crate) public_fields: Vec<SingularPath>,
}

impl ResolvedPermissions {
    pub(crate) fn new(permissions: &ProviderPermissions, config: &Value) -> Self {
        let expand = |hosts: &[HostTemplate]| -> Arc<[HostMatcher]> {
            // A host that lacks a member of the configuration drops out, so fewer hosts are allowed.
            hosts.iter().filter_map(|host| host.expand(config)).collect()
        };
        let all = expand(&permissions.hosts);
        let egress_scope = |hosts: &Option<Vec<HostTemplate>>, cluster| {
            let list = hosts.as_deref().map_or_else(|| Arc::clone(&all), expand);
            EgressScope::new(list, cluster)
        };
        let secrets = permissions.secrets.iter().map(|permission| ResolvedSecret {
            name: permission.name.clone(),
            egress_scope: egress_scope(&permission.hosts, permission.cluster),
            public: permission.public,
            public_fields: permission.public_fields.clone(),
        });
        let audiences = permissions.audiences.iter().filter_map(|permission| {
            let audience = permission.audience.expand(config)?;
            Some((audience, egress_scope(&permission.hosts, permission.cluster)))
        });
        let captures = permissions.captures.iter().filter_map(|permission| {
            let from = permission.host.expand(config)?;
            Some((from, EgressScope::new(expand(&permission.hosts), permission.cluster)))
        });
        let visible = permissions.visible.iter();
        let visible = visible.filter_map(|template| SingularPath::parse(&template.expand(config)?).ok());
        Self {
            secrets: secrets.collect(),
            audiences: audiences.collect(),
            captures: captures.collect(),
            visible: visible.collect(),
            response_headers: permissions.response_headers.clone(),
            output_headers: permissions.output_headers.clone(),
            hosts: all,
        }
    }

    pub(crate) fn allows_host(&self, host: &Host<String>, port: u16) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host, port))
    }

    /// What may be done with the value `name`. Its own entry takes precedence over `*`.
    pub(crate) fn secret(&self, name: &str) -> Option<&ResolvedSecret> {
        let named = |wanted: &str| self.secrets.iter().find(|permission| permission.name == wanted);
        named(name).or_else(|| named("*"))
    }

    pub(crate) fn audience_scope(&self, audience: &str) -> Option<&EgressScope> {
        let known = self.audiences.iter().find(|(known, _)| known == audience);
        known.map(|(_, egress_scope)| egress_scope)
    }

    /// Where a value captured from a response of `host` may be sent.
    pub(crate) fn capture_scope(&self, host: &Host<String>, port: u16) -> EgressScope {
        let found = self.captures.iter().find(|(from, _)| from.matches(host, port));
        found.map_or_else(
            // What no entry names may only become part of the credential.
            || EgressScope::new(Arc::new([]), true),
            |(_, egress_scope)| egress_scope.clone(),
        )
    }

    /// Where secrets that the guest makes itself, and identities of the pod that are not bearer
    /// tokens, may be sent.
    pub(crate) fn all_hosts_scope(&self) -> EgressScope {
        EgressScope::new(Arc::clone(&self.hosts), true)
    }

    /// Whether the guest may read the field `name` of a response.
    pub(crate) fn allows_response_header(&self, name: &HeaderName) -> bool {
        const ALWAYS: [&str; 3] = ["content-type", "date", "retry-after"];
        ALWAYS.contains(&name.as_str()) || self.response_headers.contains(name)
    }
}
