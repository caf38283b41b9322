//! `/.well-known/jwks.json`: the public keys by which backends verify assertions. Nothing else can be read without
//! authentication. Source: RFC 8615 and RFC 7517.

use std::sync::Arc;

use http::{Response, Uri, request};

use tollgate_front::path::{Captures, Methods, Path};
use tollgate_front::{Denial, Front, RequestContext, Services, api};
use tollgate_proxy::assertion::SigningKeys;
use tollgate_proxy::forward::Body;
use tollgate_proxy::target;

/// The keys by which backends verify signed assertions (JWKS, RFC 7517).
#[derive(Debug)]
pub struct AssertionKeysFront(Arc<SigningKeys>);

impl Front for AssertionKeysFront {
    // Backends ask, and no decision is made.
    const NAME: &'static str = "none";
    const PATHS: &'static [Path<()>] = &[Path::new(Methods::Read, &["/.well-known/jwks.json"], &[], ())];

    type Endpoint = ();
    type Target = ();

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self(Arc::clone(&services.signer))))
    }

    fn target((): (), _: &Captures<'_>, _: &Uri) -> Result<Option<()>, target::Error> {
        Ok(Some(()))
    }

    async fn serve(
        self: &Arc<Self>,
        (): (),
        _: RequestContext<'_>,
        _: (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let Self(keys) = &**self;
        Ok(api::json(serde_json::to_vec(&keys.jwks()).unwrap_or_default()))
    }
}
