//! Rewords errors of the client library, one line each, for operators.
//!
//! Security: the library's own messages may quote a kubeconfig or the output of a credential
//! plugin, so they are not passed on.

use std::error::Error;

use kube::client::AuthError;
use kube::config::{KubeconfigError, LoadDataError};

use tollgate_core::diagnostic::{one_line, with_causes};

/// Longest foreign text that is passed on, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// Foreign text as an error may contain it: one line of at most [`MAX_TEXT_BYTES`].
pub(crate) fn short(text: &str) -> String {
    one_line(text, MAX_TEXT_BYTES)
}

pub(super) fn describe_kubeconfig_error(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::CurrentContextNotSet => "it has no `current-context`, and none is set".to_owned(),
        KubeconfigError::KindMismatch | KubeconfigError::ApiVersionMismatch => {
            "its parts are of several kinds or versions".to_owned()
        }
        KubeconfigError::LoadContext(_) => "it has no such context".to_owned(),
        KubeconfigError::LoadClusterOfContext(_) => "it has no such cluster as its context names".to_owned(),
        KubeconfigError::FindPath => "its path is not known".to_owned(),
        KubeconfigError::ReadConfig(error, _) => format!("it cannot be read: {}", error.kind()),
        KubeconfigError::Parse(_) => "it is no YAML of a kubeconfig".to_owned(),
        KubeconfigError::MissingClusterUrl => "its cluster has no `server`".to_owned(),
        KubeconfigError::ParseClusterUrl(_) => "`server` of its cluster is no URL".to_owned(),
        KubeconfigError::ParseProxyUrl(_) => "`proxy-url` of its cluster is no URL".to_owned(),
        KubeconfigError::LoadCertificateAuthority(error) => describe_load_error("certificate-authority", error),
        KubeconfigError::LoadClientCertificate(error) => describe_load_error("client-certificate", error),
        KubeconfigError::LoadClientKey(error) => describe_load_error("client-key", error),
        KubeconfigError::ParseCertificates(_) => "a certificate of it is no PEM".to_owned(),
        // Variants that exist only with some features of the library.
        #[expect(unreachable_patterns, reason = "they depend on features of the library")]
        _ => "it cannot be used".to_owned(),
    }
}

fn describe_load_error(key: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::DecodeBase64(_) => format!("`{key}-data` is not base64"),
        LoadDataError::ReadFile(error, _) => format!("the file of `{key}` cannot be read: {}", error.kind()),
        LoadDataError::NoBase64DataOrFile => format!("there is no `{key}`"),
    }
}

fn describe_auth_error(error: &AuthError) -> String {
    let what = match error {
        AuthError::InvalidBasicAuth(_) => "user and password cannot be sent",
        AuthError::InvalidBearerToken(_) => "the token cannot be sent",
        AuthError::UnrefreshableTokenResponse => "the credential plugin gave no token again",
        AuthError::ExecPluginFailed => "the credential plugin answered without `status`",
        AuthError::MalformedTokenExpirationDate(_) => "the credential's time of expiry is no time",
        AuthError::AuthExecStart(error) => {
            return format!("the credential plugin cannot be started: {}", error.kind());
        }
        AuthError::AuthExecRun { out, .. } => return format!("the credential plugin failed: {}", out.status),
        AuthError::AuthExecParse(_) => "the credential plugin's answer is no ExecCredential",
        AuthError::AuthExecSerialize(_) => "the credential plugin cannot be asked",
        AuthError::ReadTokenFile(error, _) => return format!("the token's file cannot be read: {}", error.kind()),
        AuthError::MissingCommand => "the credential plugin has no `command`",
        AuthError::ExecMissingClusterInfo => "the credential plugin wants a cluster, and there is none",
        AuthError::NoValidNativeRootCA(_) => "this machine has no certificate authorities",
        // Variants with free text, and those of sign-in services.
        _ => "no credential can be had as the kubeconfig says",
    };
    what.to_owned()
}

pub(crate) fn describe_client_error(error: &kube::Error) -> String {
    match error {
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => "the answer is not what Kubernetes answers".to_owned(),
        kube::Error::Auth(error) => describe_auth_error(error),
        kube::Error::InferKubeconfig(error) => describe_kubeconfig_error(error),
        kube::Error::InferConfig(_) => "there is no configuration".to_owned(),
        kube::Error::RustlsTls(_) => "certificate, key or authorities cannot be used".to_owned(),
        kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. } => {
            "a proxy of this protocol cannot be used".to_owned()
        }
        other => describe_causes(other),
    }
}

/// Rewords the error if one of its causes is reworded above; otherwise joins its causes.
fn describe_causes(error: &kube::Error) -> String {
    let mut cause = error.source();
    while let Some(now) = cause {
        if let Some(auth) = now.downcast_ref::<AuthError>() {
            return describe_auth_error(auth);
        }
        if let Some(inner) = now.downcast_ref::<kube::Error>() {
            return describe_client_error(inner);
        }
        cause = now.source();
    }
    short(&with_causes(error))
}
