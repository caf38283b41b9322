//! Plugins that edit the header fields of messages. A call returns the message either with all
//! edits applied or unchanged.
//!
//! Security: only the fields that the manifest names enter guest memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, StatusCode};

use super::bindings::exports::tollgate::plugin::headers::GuestIndices;
use super::bindings::tollgate::plugin::header_types as wit;
use super::compilation_cache::CodeOrigin;
use super::edits;
use super::error::{CallError, InvalidOutput};
use super::manifest::{ContextPart, Direction, Manifest};
use super::plan::HeaderPlan;
use super::sandbox::Sandbox;

/// The attributes of a request that header filters may see. Each sees the parts that its manifest
/// asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilterContext<'a> {
    /// Extension that is called.
    pub extension: &'a str,
    /// Method, as the client sent it.
    pub method: &'a str,
    /// Path below the extension, without query.
    pub path: &'a str,
    /// Name of the caller.
    pub user: Option<&'a str>,
    /// Groups of the caller.
    pub groups: &'a [String],
    /// Application, as `namespace:name`.
    pub application: Option<&'a str>,
    /// Project of the application.
    pub project: Option<&'a str>,
    /// Name of the cluster the application deploys to.
    pub cluster: Option<&'a str>,
}

/// A message for the guest.
enum Message {
    Request(wit::Request),
    Response(wit::Response),
}

/// The guest's decision about a message.
type Verdict = Result<Vec<wit::Edit>, wit::Refusal>;

/// A loaded plugin of the world `header-filter`.
#[derive(Debug)]
pub struct HeaderFilter {
    manifest: Manifest,
    label: Arc<str>,
    extensions: Vec<String>,
    config: String,
    request_plan: HeaderPlan,
    response_plan: HeaderPlan,
    origin: CodeOrigin,
    guest: Guest,
}

/// The guest's code and the indices of its exports.
struct Guest {
    sandbox: Sandbox,
    exports: GuestIndices,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sandbox.fmt(f)
    }
}

impl Guest {
    /// Asks for the static plans.
    async fn plan(&self, config: &str) -> Result<Result<wit::Plans, String>, CallError> {
        let sandbox = &self.sandbox;
        let budget = sandbox.budget().for_load();
        let work = async {
            let mut store = sandbox.store(budget, None);
            let entered = sandbox.instantiate(&mut store).await;
            let plans = match entered.and_then(|instance| self.exports.load(&mut store, &instance)) {
                Ok(guest) => guest.call_plan(&mut store, config).await,
                Err(error) => Err(error),
            };
            plans.map_err(|error| sandbox.classify(&error, store.data(), budget))
        };
        sandbox.run_with_limits(budget, work).await
    }

    /// Asks what to do with a message.
    async fn filter(&self, config: &str, message: &Message) -> Result<Verdict, CallError> {
        let sandbox = &self.sandbox;
        let budget = sandbox.budget();
        let work = async {
            let mut store = sandbox.store(budget, None);
            let entered = sandbox.instantiate(&mut store).await;
            let guest = entered.and_then(|instance| self.exports.load(&mut store, &instance));
            let verdict = match (guest, message) {
                (Ok(guest), Message::Request(request)) => guest.call_filter_request(&mut store, config, request).await,
                (Ok(guest), Message::Response(response)) => {
                    guest.call_filter_response(&mut store, config, response).await
                }
                (Err(error), _) => Err(error),
            };
            verdict.map_err(|error| sandbox.classify(&error, store.data(), budget))
        };
        sandbox.run_with_limits(budget, work).await
    }
}

impl HeaderFilter {
    /// Asks the guest for its plans and checks them.
    pub(super) async fn start(
        (manifest, origin): (Manifest, CodeOrigin),
        sandbox: Sandbox,
        config: String,
        extensions: Vec<String>,
    ) -> Result<Self, StartError> {
        let exports = GuestIndices::new(sandbox.instance_pre()).map_err(StartError::World)?;
        let guest = Guest { sandbox, exports };
        let plans = guest
            .plan(&config)
            .await?
            .map_err(|text| StartError::Config(tollgate_core::diagnostic::one_line(&text, 512)))?;
        let invalid_output = |output| {
            StartError::Call(CallError::InvalidOutput {
                plugin: manifest.name.clone(),
                output,
            })
        };
        let request_plan = edits::check_plan(plans.request).map_err(invalid_output)?;
        let response_plan = edits::check_plan(plans.response).map_err(invalid_output)?;
        let label = Arc::from(format!("{}@sha256:{}", manifest.name, manifest.sha256));
        Ok(Self {
            manifest,
            label,
            extensions,
            config,
            request_plan,
            response_plan,
            origin,
            guest,
        })
    }

    /// Plugin name.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// `name@sha256:digest`, for decision records.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// SHA-256 of the component, lower-case hex.
    pub fn digest(&self) -> &str {
        &self.manifest.sha256
    }

    /// What the plugin says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Extensions it is applied to; empty for all.
    pub fn extensions(&self) -> &[String] {
        &self.extensions
    }

    /// Whether its code was compiled for this load or came from the cache.
    pub fn origin(&self) -> CodeOrigin {
        self.origin
    }

    /// Whether it is applied to `extension`.
    pub fn applies_to(&self, extension: &str) -> bool {
        self.extensions.is_empty() || self.extensions.iter().any(|name| name == extension)
    }

    /// What to do with every request.
    pub fn request_plan(&self) -> &HeaderPlan {
        &self.request_plan
    }

    /// What to do with every response.
    pub fn response_plan(&self) -> &HeaderPlan {
        &self.response_plan
    }

    /// Whether [`Self::filter_request`] must be called for each request.
    pub fn filters_requests(&self) -> bool {
        self.manifest.filters.contains(&Direction::Request)
    }

    /// Whether [`Self::filter_response`] must be called for each response.
    pub fn filters_responses(&self) -> bool {
        self.manifest.filters.contains(&Direction::Response)
    }

    /// Lets the guest edit a request. On an error, `headers` are unchanged.
    ///
    /// Cancel safe: the instance is dropped with the future.
    ///
    /// # Errors
    /// [`CallError`]; each denies this request and nothing else.
    pub async fn filter_request(&self, context: &FilterContext<'_>, headers: &mut HeaderMap) -> Result<(), CallError> {
        let fields = selected_fields(&self.manifest.request_fields, headers);
        let message = Message::Request(wit::Request {
            context: self.context(context),
            fields,
        });
        let verdict = self.guest.filter(&self.config, &message).await?;
        self.apply_verdict(verdict, headers)
    }

    /// Lets the guest edit a response head. On an error, `headers` are unchanged.
    ///
    /// Cancel safe: the instance is dropped with the future.
    ///
    /// # Errors
    /// [`CallError`]; each denies this response and nothing else.
    pub async fn filter_response(
        &self,
        context: &FilterContext<'_>,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) -> Result<(), CallError> {
        let fields = selected_fields(&self.manifest.response_fields, headers);
        let context = self.context(context);
        let message = Message::Response(wit::Response {
            context,
            status: status.as_u16(),
            fields,
        });
        let verdict = self.guest.filter(&self.config, &message).await?;
        self.apply_verdict(verdict, headers)
    }

    fn apply_verdict(&self, verdict: Verdict, headers: &mut HeaderMap) -> Result<(), CallError> {
        let plugin = || self.manifest.name.clone();
        let invalid_output = |output: InvalidOutput| CallError::InvalidOutput {
            plugin: plugin(),
            output,
        };
        match verdict {
            Ok(edits) => {
                edits::apply(edits::check(edits).map_err(invalid_output)?, headers);
                Ok(())
            }
            Err(refusal) => {
                let (status, reason) = edits::check_refusal(&refusal).map_err(invalid_output)?;
                Err(CallError::Refused {
                    plugin: plugin(),
                    status,
                    reason,
                })
            }
        }
    }

    /// The parts of the context the manifest asks for.
    fn context(&self, context: &FilterContext<'_>) -> wit::Context {
        let FilterContext {
            extension,
            method,
            path,
            user,
            groups,
            application,
            project,
            cluster,
        } = *context;
        let parts: &BTreeSet<ContextPart> = &self.manifest.context;
        let requested = |part, value: Option<&str>| value.filter(|_| parts.contains(&part)).map(str::to_owned);
        wit::Context {
            extension: extension.to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            user: requested(ContextPart::User, user),
            groups: if parts.contains(&ContextPart::Groups) {
                groups.to_vec()
            } else {
                Vec::new()
            },
            application: requested(ContextPart::Application, application),
            project: requested(ContextPart::Project, project),
            cluster: requested(ContextPart::Cluster, cluster),
        }
    }
}

/// Why a plugin does not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the plugin refuses its configuration: {0}")]
    Config(String),
    #[error("the component does not fit its world: {0:#}")]
    World(wasmtime::Error),
}

/// The named fields of a message, in the manifest's order.
fn selected_fields(names: &[HeaderName], headers: &HeaderMap) -> Vec<wit::Field> {
    names
        .iter()
        .flat_map(|name| {
            headers
                .get_all(name)
                .iter()
                .map(|value| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        })
        .collect()
}
