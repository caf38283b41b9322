//! The extension front: `/api/v1/extensions/{name}/{rest}` (seed 000). A call is decoded,
//! authorized, edited by plugins and the policy, and forwarded to the extension's backend.
//!
//! Security: the host writes its own fields after plugins and policy wrote theirs.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::{Method, Response, StatusCode, Uri, request};

use tollgate_config::Compatibility;
use tollgate_front::open_exchanges::Change;
use tollgate_front::path::{Captures, Path};
use tollgate_front::{DecisionInputs, Denial, Front, Lookup, Permitted, RequestContext, Services, Steps, serve_steps};
use tollgate_identity::authenticate::Safety;
use tollgate_plugin::{CallError, FilterContext as PluginContext, PluginSet};
use tollgate_proxy::assertion::{AssertionClaims, SigningKeys};
use tollgate_proxy::forward::{self, Body};
use tollgate_proxy::headers::{self, ClientFields, GroupEncoding, HostHeaders, Outbound};
use tollgate_proxy::metrics::Metrics;
use tollgate_proxy::record::{OpenRecord, Stage};
use tollgate_proxy::server::Client;
use tollgate_proxy::target;
use tollgate_rego as rego;

pub(crate) mod assertion_keys;
pub mod call;
mod evaluation;
mod exchange_timer;
pub(crate) mod facts;
pub(crate) mod permit;
mod policy_input;
pub(crate) mod route;

pub(crate) use permit::ExtensionPermit;

use call::{Call, names};
use exchange_timer::ExchangeTimer;
use route::ExtensionPath;

/// The front of extensions.
#[derive(Debug)]
pub struct ExtensionsFront {
    signer: Arc<SigningKeys>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
pub struct Permit {
    extension: Arc<ExtensionPermit>,
    plugins: Arc<PluginSet>,
    groups: GroupEncoding,
}

/// The URL, and the headers about the caller and the object.
#[derive(Debug)]
pub struct Terms(Arc<ExtensionPermit>);

impl PartialEq for Terms {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_same_way(&other.0)
    }
}

impl Eq for Terms {}

impl Hash for Terms {
    // One question seldom has two permits that lead to different places.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Front for ExtensionsFront {
    const NAME: &'static str = "extensions";
    const PATHS: &'static [Path<()>] = route::PATHS;

    type Endpoint = ();
    type Target = ExtensionPath;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self {
            signer: Arc::clone(&services.signer),
            metrics: Arc::clone(&services.metrics),
        }))
    }

    fn target((): (), captures: &Captures<'_>, uri: &Uri) -> Result<Option<ExtensionPath>, target::Error> {
        ExtensionPath::read(captures, uri).map(Some)
    }

    async fn serve(
        self: &Arc<Self>,
        target: ExtensionPath,
        context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        serve_steps(self, target, context, head, body).await
    }
}

impl Steps for ExtensionsFront {
    type Admitted = (Arc<Call>, request::Parts);
    type Question = Arc<Call>;
    type Request = (request::Parts, Body);
    type Permit = Permit;
    type Terms = Terms;

    // SECURITY: another site can make a browser send a query parameter, but not a header field.
    fn safety(target: &ExtensionPath, _: &Method) -> Safety {
        match names::are_in(target.rest.query()) {
            true => Safety::Unsafe,
            false => Safety::ByMethod,
        }
    }

    fn admit(
        &self,
        DecisionInputs { now, .. }: DecisionInputs<'_>,
        path: ExtensionPath,
        head: request::Parts,
        record: &mut OpenRecord,
    ) -> Result<Self::Admitted, Denial> {
        let compatibility = now.policies.config.extensions.compatibility;
        let call = Call::read(&path, &head, &now.extensions, compatibility)?;
        record.note(|record| note_call(record, &call));
        Ok((Arc::new(call), head))
    }

    async fn read(
        &self,
        _: &mut Lookup<'_>,
        (call, head): Self::Admitted,
        body: Body,
    ) -> Result<(Arc<Call>, Self::Request), Denial> {
        Ok((call, (head, body)))
    }

    fn authorize(
        &self,
        DecisionInputs { now, caller }: DecisionInputs<'_>,
        call: &Arc<Call>,
        record: Option<&mut OpenRecord>,
    ) -> Result<Permit, Denial> {
        let permit = permit::authorize(&now.policies, &now.extensions, caller, call, record)?;
        // After the permit: a caller who is refused learns nothing of what the gateway lacks.
        let missing = now.plugins.missing_required();
        if !missing.is_empty() {
            return Err(plugins_missing(&missing.join(", ")));
        }
        Ok(Permit {
            extension: Arc::new(permit),
            plugins: Arc::clone(&now.plugins),
            groups: match now.policies.config.extensions.compatibility {
                Compatibility::None => GroupEncoding::Escaped,
                Compatibility::Argocd => GroupEncoding::Argocd,
            },
        })
    }

    fn terms(permit: &Permit) -> Terms {
        Terms(Arc::clone(&permit.extension))
    }

    fn inputs_unchanged(change: &Change<'_>) -> bool {
        let (before, now) = (change.before, change.now);
        change.same_permissions()
            && change.same_resources()
            && Arc::ptr_eq(&before.extensions, &now.extensions)
            && Arc::ptr_eq(&before.plugins, &now.plugins)
            && change.same_bundle(rego::Front::Extensions)
    }

    async fn answer(
        &self,
        permitted: Permitted<'_>,
        permit: Permit,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let Permitted {
            client,
            principal,
            record,
            snapshot,
            guard,
            held,
        } = permitted;
        drop(snapshot);
        let guard = Arc::new(guard);
        let extension = &permit.extension;
        // After the decision: requests that are refused use up nothing of the extension's limits.
        let held = (held, extension.extension().limiter().acquire(principal.limit_key())?);
        let (fields, mut body) = match &extension.extension().spec().identity.allow_headers {
            None => (ClientFields::NoAllowlist, body),
            // Trailers are fields that the list would not cover.
            Some(listed) => (ClientFields::Allowlist(listed), body.without_trailers()),
        };
        let mut outbound = self
            .prepare(headers::clean_for(head, fields)?, &permit, client, record)
            .await?;
        outbound.hold(held);
        outbound.expire_with_credential(principal.expires_at(), record.id());
        outbound.terminate_on(guard.ending());
        // The content may go on after the response has ended.
        body.hold(Arc::clone(&guard));
        outbound.hold(guard);
        record.finish_stage(Stage::Headers);
        outbound.hold(ExchangeTimer::start(&self.metrics, extension));

        let forwarded = extension.backend().forward(outbound, body).await;
        record.finish_stage(Stage::Forward);
        self.count(extension, &forwarded);
        finish(forwarded?, extension, &permit.plugins).await
    }
}

impl ExtensionsFront {
    /// Lets plugins and the policy edit the client's remaining fields. The host then writes its
    /// own.
    async fn prepare(
        &self,
        mut cleaned: headers::CleanedRequest,
        permit: &Permit,
        client: &Arc<Client>,
        record: &mut OpenRecord,
    ) -> Result<Outbound, Denial> {
        let Permit {
            extension: permit,
            plugins,
            groups,
        } = permit;
        let extension = permit.extension();
        let context = context(permit);
        for filter in plugins.header_filters(extension.name()) {
            record.note(|record| record.plugins.push(Arc::clone(&filter.label)));
            filter.request_plan().apply(cleaned.fields_mut());
            if filter.filters_requests() {
                filter
                    .filter_request(&context, cleaned.fields_mut())
                    .await
                    .map_err(plugin_error)?;
            }
        }
        // After the plugins, so that none of them undoes what the policy says.
        for name in &permit.decision().remove_headers {
            cleaned.fields_mut().remove(name);
        }
        for (name, value) in &permit.decision().set_headers {
            cleaned.fields_mut().insert(name.clone(), value.clone());
        }
        let assertion = match &extension.spec().identity.assertion {
            Some(spec) => Some(self.signer.sign(spec, &assertion_claims(permit))?),
            None => None,
        };
        let call = permit.call();
        let own = HostHeaders {
            identity: permit.caller().identity.as_ref().map_err(Clone::clone)?,
            groups: *groups,
            resource: permit.resource_headers().as_ref().map_err(Clone::clone)?,
            assertion: assertion.as_ref(),
        };
        let upstream = &permit.backend().upstream;
        let path = target::join(&upstream.base, &call.rest, call.query.as_deref())?;
        Ok(cleaned.seal(upstream, path, &own, client)?)
    }

    /// Counts requests handed to a backend, as Argo CD does.
    fn count(&self, permit: &ExtensionPermit, forwarded: &Result<Response<Body>, forward::Error>) {
        let status = forwarded.as_ref().map_or_else(forward::Error::status, Response::status);
        self.metrics.count_forwarded(permit.extension().spec(), status.as_u16());
    }
}

/// Lets plugins edit the response.
async fn finish(
    mut response: Response<Body>,
    permit: &ExtensionPermit,
    plugins: &PluginSet,
) -> Result<Response<Body>, Denial> {
    let context = context(permit);
    let status = response.status();
    for filter in plugins.header_filters(permit.extension().name()) {
        filter.response_plan().apply(response.headers_mut());
        if filter.filters_responses() {
            filter
                .filter_response(&context, status, response.headers_mut())
                .await
                .map_err(plugin_error)?;
        }
    }
    // SECURITY: a plugin is the operator's, and its response is on the origin of the session cookie.
    headers::clean_plugin_response(response.headers_mut(), permit.extension().name());
    Ok(response)
}

fn note_call(record: &mut tollgate_proxy::record::Record, call: &Call) {
    record.extension = Some(Arc::clone(&call.attributes.name));
    record.application = call.attributes.object.application().cloned();
    record.project = call.attributes.object.project().map(str::to_owned);
}

fn context(permit: &ExtensionPermit) -> PluginContext<'_> {
    let principal = &permit.caller().principal;
    let call = permit.call();
    PluginContext {
        extension: permit.extension().name(),
        method: call.method.as_str(),
        path: &call.rest,
        user: Some(principal.username()),
        groups: principal.groups(),
        application: call.application.as_deref(),
        project: permit.project(),
        cluster: permit.destination().map(|cluster| cluster.name.as_str()),
    }
}

fn assertion_claims(permit: &ExtensionPermit) -> AssertionClaims<'_> {
    let principal = &permit.caller().principal;
    let object = &permit.call().attributes.object;
    AssertionClaims {
        subject: principal.user_id(),
        username: principal.username(),
        groups: principal.groups(),
        application: object
            .application()
            .map(|app| (app.namespace.as_str(), app.name.as_str())),
        project: permit.project(),
        caller_expires_at: principal.expires_at().map(jiff::Timestamp::as_second),
    }
}

fn plugins_missing(names: &str) -> Denial {
    let text = "the gateway is not completely set up";
    Denial::failed(StatusCode::SERVICE_UNAVAILABLE, "plugin_missing", text)
        .with_detail(format!("required plugins are not loaded: {names}"))
}

fn plugin_error(error: CallError) -> Denial {
    let denial = match &error {
        CallError::Refused { status, reason, .. } => Denial::denied(*status, "refused_by_plugin", reason.clone()),
        CallError::Busy { .. } => {
            let text = "the gateway is busy, try again";
            Denial::failed(StatusCode::SERVICE_UNAVAILABLE, "plugin_busy", text).retry_after(Some(1))
        }
        CallError::Trap { .. }
        | CallError::Timeout { .. }
        | CallError::Memory { .. }
        | CallError::InvalidOutput { .. } => {
            let text = "a plugin could not do its work";
            Denial::failed(StatusCode::INTERNAL_SERVER_ERROR, "plugin_failed", text)
        }
    };
    denial.caused_by(error)
}
