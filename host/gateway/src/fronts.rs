//! The list of fronts. A front is named here, once, and nowhere else outside its folder.

use std::sync::Arc;

use http::{Method, Response, Uri, request};

use crate::applications::ApplicationsFrontState;
use crate::clusters::ClustersFront;
use crate::error_format::ErrorFormat;
use crate::extensions::ExtensionsFront;
use crate::front::{self, Front, RequestContext, Services};
use crate::projects::ProjectsFront;
use crate::snapshot::Snapshot;
use tollgate_config::Config;
use tollgate_front::Denial;
use tollgate_front::path::{self, Answerer, PathLine};
use tollgate_identity::authenticate::Safety;
use tollgate_proxy::forward::Body;
use tollgate_proxy::target;

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

        impl FrontTarget {
            /// Finds the front of a request, among the paths that one of these answers. `None` if none has the path.
            ///
            /// # Errors
            /// [`target::Error`] for a path that two readers could read differently.
            pub(crate) fn find(
                method: &Method,
                uri: &Uri,
                answered_by: &[Answerer],
            ) -> Result<Option<(Self, Answerer)>, target::Error> {
                $(
                    if let Some((target, answerer)) = front::find::<$front>(method, uri, answered_by)? {
                        return Ok(Some((Self::$variant(target), answerer)));
                    }
                )+
                Ok(None)
            }

            pub(crate) fn safety(&self, method: &Method) -> Safety {
                match self {
                    $(Self::$variant(target) => <$front>::safety(target, method),)+
                }
            }
        }

        impl Fronts {
            pub(crate) fn open(services: &Services<'_>) -> Self {
                Self {
                    $($field: <$front>::open(services).map(Arc::new),)+
                }
            }

            /// Runs the stages of a request.
            ///
            /// # Errors
            /// The denial of the first stage that refuses the request or fails.
            pub(crate) async fn serve(
                &self,
                target: FrontTarget,
                context: RequestContext<'_>,
                request: (request::Parts, Body),
            ) -> Result<Response<Body>, Denial> {
                match target {
                    $(FrontTarget::$variant(target) => {
                        front::serve(self.$field.as_ref(), target, context, request).await
                    })+
                }
            }
        }

        /// Whether a path leads into a cluster, even if it is malformed.
        pub(crate) fn leads_into_cluster(path: &str) -> bool {
            $(path::is_in(<$front>::PATHS, path, &[Answerer::Cluster]))||+
        }

        /// The format of the errors below a path, where its front has one that differs from the API's.
        pub(crate) fn error_format(path: &str, now: &Snapshot) -> Option<ErrorFormat> {
            $(
                if let Some(format) = <$front>::error_format(now)
                    && path::is_in(<$front>::PATHS, path, Answerer::ALL)
                {
                    return Some(format);
                }
            )+
            None
        }

        /// The paths of each front.
        pub(crate) fn paths(config: &Config) -> Vec<(&'static str, Vec<PathLine>)> {
            vec![$((
                <$front>::NAME,
                path::lines(<$front>::PATHS, |endpoint| <$front>::is_open(config, endpoint)),
            )),+]
        }
    };
}

fronts! {
    clusters: Clusters(ClustersFront),
    applications: Applications(ApplicationsFrontState),
    extensions: Extensions(ExtensionsFront),
    projects: Projects(ProjectsFront),
}
