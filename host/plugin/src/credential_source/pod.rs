//! The pod's own ServiceAccount token, for the control plane's own cluster. The kubelet renews the
//! file, so a token is kept for a few minutes at most.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};

use crate::ambient::read_token;
use tollgate_credential::{Credential, Mint, MintError, MintErrorClass, MintRequest, Token};

#[derive(Debug)]
pub(super) struct PodToken {
    pub(super) file: PathBuf,
}

impl Mint for PodToken {
    fn mint(&self, _: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>> {
        let file = self.file.clone();
        async move {
            let text = read_token(&file).await.map_err(|error| {
                MintError::new(MintErrorClass::Retryable, "ambient.unavailable", &error.to_string())
            })?;
            let token = Token::parse(text.expose_secret().to_owned()).map_err(|error| {
                let message = format!("`{}` holds no token: {error}", file.display());
                MintError::new(MintErrorClass::Permanent, "ambient.token", &message)
            })?;
            // The token's expiry is ignored: the kubelet renews the file at four fifths of the
            // token's lifetime, and a credential without a known expiry is used for 5 minutes.
            Ok(Credential::from_token(token))
        }
        .boxed()
    }

    fn revoke(&self, _: SecretString) -> BoxFuture<'static, Result<(), MintError>> {
        async { Ok(()) }.boxed()
    }
}
