//! The Secret in which replicas share the certificate.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, PostParams};
use secrecy::{ExposeSecret as _, SecretString};

use super::pair::{Pair, Stored};
use super::{Error, MANAGER, Scope, Target};

/// Names of certificate, key and authorities in `data`, of the current and the next pair. The first three
/// are those of other programs that keep certificates in Secrets.
const CURRENT: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];
const NEXT: [&str; 3] = ["next.crt", "next.key", "next-ca.crt"];

pub(super) struct SharedSecret {
    api: Api<Secret>,
    namespace: String,
    name: String,
}

/// The Secret as it was read.
pub(super) struct Found {
    secret: Secret,
    pub(super) stored: Stored,
}

impl SharedSecret {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn target(&self) -> Target<'_> {
        Target {
            kind: "Secret",
            name: &self.name,
            scope: Scope::Namespace(&self.namespace),
            group: "",
            plural: "secrets",
            verbs: "get, update",
        }
    }

    pub(super) async fn read(&self) -> Result<Found, Error> {
        let secret = self.target().answer("read", self.api.get(&self.name)).await?;
        let secret = secret.ok_or_else(|| Error::NoSecret(format!("{}/{}", self.namespace, self.name)))?;
        let data = secret.data.as_ref();
        let text = |key: &str| {
            let ByteString(bytes) = data?.get(key)?;
            String::from_utf8(bytes.clone()).ok()
        };
        // An incomplete pair counts as none, as in the empty Secret of the manifests.
        let pair = |[certificate, key, authorities]: [&str; 3]| {
            Some(Pair {
                certificate: text(certificate)?,
                key: SecretString::from(text(key)?),
                authorities: text(authorities)?,
            })
        };
        let stored = Stored {
            current: pair(CURRENT),
            next: pair(NEXT),
        };
        Ok(Found { secret, stored })
    }

    /// Replaces what was found. False if the Secret has changed since.
    pub(super) async fn replace(&self, found: &Found, stored: &Stored) -> Result<bool, Error> {
        let mut data = BTreeMap::new();
        for (names, pair) in [(CURRENT, &stored.current), (NEXT, &stored.next)] {
            let Some(pair) = pair else { continue };
            let texts = [&pair.certificate, pair.key.expose_secret(), &pair.authorities];
            for (name, text) in names.into_iter().zip(texts) {
                data.insert(name.to_owned(), ByteString(text.as_bytes().to_vec()));
            }
        }
        // It keeps the `resourceVersion` that was read: if another replica has written since, the API server answers
        // 409.
        let secret = Secret {
            data: Some(data),
            ..found.secret.clone()
        };
        let parameters = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let replaced = self.api.replace(&self.name, &parameters, &secret);
        Ok(self.target().answer("changed", replaced).await?.is_some())
    }
}

impl fmt::Display for SharedSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.target().display())
    }
}
