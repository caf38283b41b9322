//! A gauge of what clusters let the gateway do for Applications.
//!
//! Security: no label has a value that an account or an Application can choose.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    cluster: String,
    /// `impersonation`, `existence` or `extra`.
    about: &'static str,
    /// `granted`, `missing` or `unknown`.
    state: &'static str,
}

/// The grants each cluster gives for the accounts of Applications.
#[derive(Debug)]
pub struct ApplicationGrants(Family<Labels, Gauge>);

impl ApplicationGrants {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self(super::register(
            registry,
            "tollgate_application_grants",
            "Service accounts of Applications the gateway may act as (impersonation) and that are there (existence), \
             and keys that may travel along (extra), by what the cluster said",
        ))
    }

    /// Replaces all values: for each cluster, how many grants of impersonation, existence and
    /// extra are granted, missing and unknown.
    pub fn set<'a>(&self, clusters: impl Iterator<Item = (&'a str, [[usize; 3]; 3])>) {
        // Removes the series of clusters that no longer exist.
        self.0.clear();
        for (cluster, counts) in clusters {
            for (about, counts) in ["impersonation", "existence", "extra"].into_iter().zip(counts) {
                for (state, count) in ["granted", "missing", "unknown"].into_iter().zip(counts) {
                    let labels = Labels {
                        cluster: cluster.to_owned(),
                        about,
                        state,
                    };
                    let count = i64::try_from(count).unwrap_or(i64::MAX);
                    self.0.get_or_create(&labels).set(count);
                }
            }
        }
    }
}
