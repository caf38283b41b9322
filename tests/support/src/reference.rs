//! What the code tells `cargo xtask reference`.

use xtask::reference::{Facts, Label, Reason};

/// Every metric, label, and reason of a denial.
pub fn facts() -> Facts {
    let labels = tollgate_proxy::metrics::LABELS.iter().map(|label| Label {
        name: label.name.to_owned(),
        metrics: label.metrics.iter().map(|&name| name.to_owned()).collect(),
        values: label.values.to_owned(),
    });
    let reasons = tollgate_front::denial::REASONS.iter().map(|reason| Reason {
        code: reason.code.to_owned(),
        statuses: reason.statuses.to_vec(),
        fronts: reason.fronts.to_owned(),
        meaning: reason.meaning.to_owned(),
    });
    Facts {
        metrics: crate::metrics::served(),
        labels: labels.collect(),
        reasons: reasons.collect(),
    }
}
