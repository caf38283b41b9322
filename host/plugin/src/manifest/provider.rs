//! The part of a manifest that only credential providers have: hosts, secrets, audiences and
//! captures. It becomes [`ProviderPermissions`], or a finding with its line for every mistake.
//!
//! Security: a secret may go only where the manifest says that it may.

use http::HeaderName;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{ManifestChecker, RawManifest, Words};
use crate::egress_scope::{HostTemplate, TextTemplate};
use crate::permissions::{AudiencePermission, CapturePermission, ProviderPermissions, SecretPermission};
use tollgate_core::header_names::is_host_owned;
use tollgate_core::json_path::SingularPath;
use tollgate_core::plugin::World;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSecret {
    name: Spanned<String>,
    hosts: Option<Words>,
    #[serde(default)]
    cluster: bool,
    #[serde(default)]
    public: bool,
    #[serde(default)]
    public_fields: Words,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawAudience {
    audience: Spanned<String>,
    hosts: Option<Words>,
    #[serde(default)]
    cluster: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCapture {
    host: Spanned<String>,
    #[serde(default)]
    hosts: Words,
    #[serde(default)]
    cluster: bool,
}

impl RawManifest {
    /// The first part that only header filters have.
    fn first_of_filter(&self) -> Option<&Spanned<String>> {
        let lists = [
            &self.request_fields,
            &self.response_fields,
            &self.context,
            &self.filters,
        ];
        lists.into_iter().flatten().next()
    }

    /// The first part that header filters do not have.
    fn first_of_provider(&self) -> Option<&Spanned<String>> {
        let texts = [&self.hosts, &self.visible, &self.response_headers, &self.output_headers];
        let texts = texts.into_iter().flatten();
        texts
            .chain(self.secrets.iter().map(|secret| &secret.name))
            .chain(self.audiences.iter().map(|audience| &audience.audience))
            .chain(self.captures.iter().map(|capture| &capture.host))
            .next()
    }
}

impl ManifestChecker {
    pub(super) fn fits_world(&mut self, world: Option<World>, raw: &RawManifest) {
        let (part, message) = match (world, raw.first_of_filter(), raw.first_of_provider()) {
            (Some(World::HeaderFilter), _, Some(part)) => {
                (part, "header filters have no hosts, secrets, audiences and captures")
            }
            (Some(World::CredentialProvider | World::Generator), Some(part), _) => {
                (part, "only header filters have fields, context and filters")
            }
            (_, _, _) => return,
        };
        self.refuse(part, message.to_owned(), "remove the key, or change `world`");
    }

    pub(super) fn provider(&mut self, raw: &RawManifest) -> ProviderPermissions {
        ProviderPermissions {
            hosts: self.hosts(&raw.hosts),
            secrets: raw.secrets.iter().map(|secret| self.secret(secret)).collect(),
            audiences: raw.audiences.iter().filter_map(|raw| self.audience(raw)).collect(),
            captures: raw.captures.iter().filter_map(|raw| self.capture(raw)).collect(),
            visible: raw.visible.iter().filter_map(|path| self.visible_path(path)).collect(),
            response_headers: raw
                .response_headers
                .iter()
                .filter_map(|name| self.response_name(name))
                .collect(),
            output_headers: raw
                .output_headers
                .iter()
                .filter_map(|name| self.output_name(name))
                .collect(),
        }
    }

    fn hosts(&mut self, parts: &[Spanned<String>]) -> Vec<HostTemplate> {
        parts.iter().filter_map(|part| self.host(part)).collect()
    }

    fn host(&mut self, part: &Spanned<String>) -> Option<HostTemplate> {
        HostTemplate::parse(&part.value)
            .inspect_err(|error| {
                let message = format!("`{}` is no host of a manifest: {error}", part.value);
                let hint = "such as `auth.example.com`, `sts.{region}.example.com`, `{endpoint}`";
                self.refuse(part, message, hint);
            })
            .ok()
    }

    fn secret(&mut self, raw: &RawSecret) -> SecretPermission {
        let fields = raw.public_fields.iter().filter_map(|part| self.path(part)).collect();
        SecretPermission {
            hosts: raw.hosts.as_ref().map(|hosts| self.hosts(hosts)),
            name: raw.name.value.clone(),
            cluster: raw.cluster,
            public: raw.public,
            public_fields: fields,
        }
    }

    fn audience(&mut self, raw: &RawAudience) -> Option<AudiencePermission> {
        let hosts = raw.hosts.as_ref().map(|hosts| self.hosts(hosts));
        Some(AudiencePermission {
            audience: self.template(&raw.audience)?,
            hosts,
            cluster: raw.cluster,
        })
    }

    fn capture(&mut self, raw: &RawCapture) -> Option<CapturePermission> {
        let hosts = self.hosts(&raw.hosts);
        Some(CapturePermission {
            host: self.host(&raw.host)?,
            hosts,
            cluster: raw.cluster,
        })
    }

    /// A path that may have members of the configuration in it.
    fn visible_path(&mut self, part: &Spanned<String>) -> Option<TextTemplate> {
        // With members of the configuration in it, it is a path only once they are filled in.
        if !part.value.contains('{') {
            self.path(part)?;
        }
        self.template(part)
    }

    fn template(&mut self, part: &Spanned<String>) -> Option<TextTemplate> {
        TextTemplate::parse(&part.value)
            .inspect_err(|error| self.refuse(part, format!("`{}`: {error}", part.value), "such as `{audience}`"))
            .ok()
    }

    fn path(&mut self, part: &Spanned<String>) -> Option<SingularPath> {
        SingularPath::parse(&part.value)
            .inspect_err(|error| {
                let hint = "an RFC 9535 singular query, such as `$.a.b[0]`";
                self.refuse(part, error.to_string(), hint);
            })
            .ok()
    }

    fn response_name(&mut self, part: &Spanned<String>) -> Option<HeaderName> {
        let name = HeaderName::from_bytes(part.value.as_bytes()).ok();
        let name = name.filter(|name| !matches!(name.as_str(), "set-cookie" | "authorization" | "location"));
        if name.is_none() {
            let message = format!("no plugin may read the field `{}`", part.value);
            let hint = "such as `x-request-id`; fields that carry credentials stay in the gateway";
            self.refuse(part, message, hint);
        }
        name
    }

    fn output_name(&mut self, part: &Spanned<String>) -> Option<HeaderName> {
        let name = HeaderName::from_bytes(part.value.as_bytes()).ok();
        let name = name.filter(|name| !is_host_owned(name));
        if name.is_none() {
            let message = format!("no credential may carry the field `{}`", part.value);
            self.refuse(part, message, "the gateway's own fields are not for plugins");
        }
        name
    }
}
