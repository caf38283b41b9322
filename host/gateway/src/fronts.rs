//! The list of fronts. No other code outside a front's folder depends on which fronts there are; lists for people
//! (ARCHITECTURE.md, docs/concepts.md, the label `front`, the console's filter) are compared with this one by a test.

use std::sync::Arc;

use http::uri::Authority;
use http::{Response, Uri, request};
use uuid::Uuid;

use tollgate_api_fronts::{AccessFront, ConsoleFront, LoginFront, OperationsFront, ProjectsFront};
use tollgate_applicationset_front::{ApplicationSetsFront, SetSummariesFront};
use tollgate_argocd_fronts::{ArgocdFront, AssertionKeysFront, ExtensionsFront};
use tollgate_cluster_fronts::{AgentsFront, ApplicationsFront, ClustersFront, ControlPlaneFront, KubernetesFront};
use tollgate_config::Config;
use tollgate_front::path::{self, Answerer, PathLine};
use tollgate_front::snapshot::Snapshot;
use tollgate_front::{Arrival, Denial, Fallback, Front, Pass, PathRules, RequestContext, Services};
use tollgate_proxy::forward::Body;
use tollgate_proxy::server::Client;
use tollgate_proxy::target;

/// The least that settings say.
#[cfg(test)]
pub(crate) fn config() -> Config {
    let settings = "state: {directory: s}\npolicies: {directory: p}";
    let read = tollgate_config::raw::parse(settings, "t.yaml", std::path::Path::new("/"));
    read.value.expect("settings")
}

#[cfg(test)]
impl FrontTarget {
    /// What a request of a client that sends only `Host` is for.
    pub(crate) fn of(
        config: &Config,
        method: &http::Method,
        uri: &Uri,
        fallback: Fallback,
    ) -> Result<Option<Self>, target::Error> {
        let (mut head, ()) = http::Request::new(()).into_parts();
        head.method.clone_from(method);
        let host = http::HeaderValue::from_static("gateway.example");
        head.headers.insert(http::header::HOST, host);
        let arrival = arrival(&head, uri, None, fallback, config);
        Ok(Self::find(&arrival)?.map(|(target, _)| target))
    }
}

/// The head of a request, for the fronts to find theirs.
///
/// - `tunnel`: the host and port of the tunnel in which it came, if it came in one.
pub(crate) fn arrival<'a>(
    head: &'a request::Parts,
    uri: &'a Uri,
    tunnel: Option<&'a Authority>,
    fallback: Fallback,
    config: &'a Config,
) -> Arrival<'a> {
    Arrival {
        head,
        uri,
        tunnel,
        fallback,
        leads_into_cluster,
        config,
    }
}

macro_rules! fronts {
    ($($field:ident: $variant:ident($front:ty)),+ $(,)?) => {
        /// The fronts. Each is `None` while the settings close it.
        #[derive(Debug)]
        pub(crate) struct Fronts {
            $(pub(crate) $field: Option<Arc<$front>>,)+
        }

        /// What a request to one of the fronts is for.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) enum FrontTarget {
            $($variant(<$front as Front>::Target),)+
        }

        /// The name of a front.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum FrontName {
            $($variant,)+
        }

        impl FrontTarget {
            /// Finds the front of a request, and who answers it. `None` if no front has it.
            ///
            /// # Errors
            /// [`target::Error`] for a path that two readers could read differently.
            pub(crate) fn find(arrival: &Arrival<'_>) -> Result<Option<(Self, Answerer)>, target::Error> {
                if arrival.tunnel.is_none() {
                    target::authority(arrival.method(), arrival.uri, &arrival.head.headers)?;
                }
                // Not front by front: two of them could take each other's names, see `Pass`.
                for pass in Pass::ALL {
                    $(
                        if let Some((target, answerer)) = <$front>::find(arrival, pass)? {
                            return Ok(Some((Self::$variant(target), answerer)));
                        }
                    )+
                }
                Ok(None)
            }

            /// The name of the front.
            #[cfg(test)]
            pub(crate) fn front(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => <$front>::NAME,)+
                }
            }
        }

        impl Fronts {
            /// # Errors
            /// What the settings name cannot be read or used.
            pub(crate) fn open(services: &Services) -> anyhow::Result<Self> {
                Ok(Self {
                    $($field: <$front>::open(services)?.map(Arc::new),)+
                })
            }

            /// Serves a request.
            ///
            /// # Errors
            /// Why it was refused, or what failed.
            pub(crate) async fn serve(
                &self,
                target: FrontTarget,
                context: RequestContext<'_>,
                head: request::Parts,
                body: Body,
            ) -> Result<Response<Body>, Denial> {
                match target {
                    $(FrontTarget::$variant(target) => {
                        context.record.note(|record| record.front = <$front>::NAME);
                        match &self.$field {
                            Some(front) => front.serve(target, context, (head, body)).await,
                            None => Err(context.refuse_unserved(&head).await),
                        }
                    })+
                }
            }

            /// Has the front of a request that was refused before it was served record that.
            pub(crate) async fn record_early_refusal(
                &self,
                of: FrontName,
                denial: &Denial,
                client: &Client,
                decision: Uuid,
            ) {
                match of {
                    $(FrontName::$variant => {
                        if let Some(front) = &self.$field {
                            front.record_early_refusal(denial, client, decision).await;
                        }
                    })+
                }
            }
        }

        /// The front of a request that differs from the rest of the API, and how, even if the path is malformed.
        pub(crate) fn rules(arrival: &Arrival<'_>, now: &Snapshot) -> Option<(FrontName, PathRules)> {
            $(
                if let Some(rules) = <$front>::rules(arrival, now) {
                    return Some((FrontName::$variant, rules));
                }
            )+
            None
        }

        /// Whether a path leads into a cluster, even if it is malformed.
        pub(crate) fn leads_into_cluster(path: &str) -> bool {
            $(path::is_in(<$front>::PATHS, path, &[Answerer::Cluster]))||+
        }

        /// The paths of each front.
        pub(crate) fn paths(config: &Config) -> Vec<(&'static str, Vec<PathLine>)> {
            vec![$((<$front>::NAME, <$front>::lines(config))),+]
        }
    };
}

// A request is compared with them in this order, in each pass.
fronts! {
    control_plane: ControlPlane(ControlPlaneFront),
    console: Console(ConsoleFront),
    application_sets: ApplicationSets(ApplicationSetsFront),
    set_summaries: SetSummaries(SetSummariesFront),
    agents: Agents(AgentsFront),
    clusters: Clusters(ClustersFront),
    applications: Applications(ApplicationsFront),
    extensions: Extensions(ExtensionsFront),
    projects: Projects(ProjectsFront),
    kubernetes: Kubernetes(KubernetesFront),
    access: Access(AccessFront),
    login: Login(LoginFront),
    assertion_keys: AssertionKeys(AssertionKeysFront),
    operations: Operations(OperationsFront),
    argocd: Argocd(ArgocdFront),
}
