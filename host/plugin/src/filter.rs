//! Plugins that edit the header fields of messages. A call returns the message either with all
//! edits applied or unchanged.
//!
//! Security: only the fields that the manifest names enter guest memory.

use http::{HeaderMap, HeaderName, StatusCode};

use super::bindings::exports::tollgate::plugin::headers::GuestIndices;
use super::bindings::tollgate::plugin::header_types as wit;
use super::compilation_cache::CodeOrigin;
use super::edits;
use super::error::{CallError, InvalidOutput};
use super::guest::Guest;
use super::manifest::{ContextPart, Direction, Manifest};
use super::plan::HeaderPlan;
use super::sandbox::Sandbox;
use tollgate_core::diagnostic::one_line;

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

type Verdict = Result<Vec<wit::Edit>, wit::Refusal>;

/// A loaded plugin of the world `header-filter`.
pub type HeaderFilter = Guest<FilterParts>;

/// What a header filter has beside its code.
#[expect(missing_debug_implementations, reason = "the generated exports have none")]
pub struct FilterParts {
    exports: GuestIndices,
    extensions: Vec<String>,
    config: String,
    request_plan: HeaderPlan,
    response_plan: HeaderPlan,
}

impl HeaderFilter {
    /// Lets the guest plan. An error says why the filter cannot be used.
    pub(super) async fn start(
        manifest: Manifest,
        origin: CodeOrigin,
        sandbox: Sandbox,
        config: String,
        extensions: Vec<String>,
    ) -> Result<Self, String> {
        let exports = sandbox.exports(GuestIndices::new)?;
        let planned = sandbox.call(sandbox.budget.for_load(), None, async |store, instance| {
            let guest = exports.load(&mut *store, &instance)?;
            guest.call_plan(store, &config).await
        });
        let (plans, _) = planned.await.map_err(|error| error.to_string())?;
        // The text is the guest's. In one line it cannot look like further lines of the log.
        let plans = plans.map_err(|text| format!("the plugin refuses its configuration: {}", one_line(&text, 512)))?;
        let check = |plan| edits::check_plan(plan).map_err(|output| invalid_output(&manifest, output).to_string());
        let parts = FilterParts {
            request_plan: check(plans.request)?,
            response_plan: check(plans.response)?,
            exports,
            extensions,
            config,
        };
        Ok(Self::new(manifest, origin, sandbox, parts))
    }

    /// SHA-256 of the component, lower-case hex.
    pub fn digest(&self) -> &str {
        &self.manifest.sha256
    }

    /// Extensions it is applied to; empty for all.
    pub fn extensions(&self) -> &[String] {
        &self.world.extensions
    }

    /// Whether it is applied to `extension`.
    pub fn applies_to(&self, extension: &str) -> bool {
        self.world.extensions.is_empty() || self.world.extensions.iter().any(|name| name == extension)
    }

    /// What to do with every request.
    pub fn request_plan(&self) -> &HeaderPlan {
        &self.world.request_plan
    }

    /// What to do with every response.
    pub fn response_plan(&self) -> &HeaderPlan {
        &self.world.response_plan
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
        let request = wit::Request {
            context: self.context(context),
            fields,
        };
        let called = self.sandbox.call(self.sandbox.budget, None, async |store, instance| {
            let guest = self.world.exports.load(&mut *store, &instance)?;
            guest.call_filter_request(store, &self.world.config, &request).await
        });
        let (verdict, _) = called.await?;
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
        let response = wit::Response {
            context: self.context(context),
            status: status.as_u16(),
            fields,
        };
        let called = self.sandbox.call(self.sandbox.budget, None, async |store, instance| {
            let guest = self.world.exports.load(&mut *store, &instance)?;
            guest.call_filter_response(store, &self.world.config, &response).await
        });
        let (verdict, _) = called.await?;
        self.apply_verdict(verdict, headers)
    }

    fn apply_verdict(&self, verdict: Verdict, headers: &mut HeaderMap) -> Result<(), CallError> {
        let invalid_output = |output| invalid_output(&self.manifest, output);
        match verdict {
            Ok(edits) => {
                edits::apply(edits::check(edits).map_err(invalid_output)?, headers);
                Ok(())
            }
            Err(refusal) => {
                let (status, reason) = edits::check_refusal(&refusal).map_err(invalid_output)?;
                let plugin = self.manifest.name.clone();
                Err(CallError::Refused { plugin, status, reason })
            }
        }
    }

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
        let parts = &self.manifest.context;
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

fn invalid_output(manifest: &Manifest, output: InvalidOutput) -> CallError {
    let plugin = manifest.name.clone();
    CallError::InvalidOutput { plugin, output }
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
