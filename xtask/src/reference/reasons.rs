//! The page of the reasons of denials.

use anyhow::Result;

use super::Reason;
use super::text::entry;

const INTRODUCTION: &str = "\
# Reasons

Every refusal has a stable `reason` for programs, beside a text for people. It is in the response where its format has a
place for it, in the decision record (`tollgate decisions`), and in the label `reason` of `tollgate_decisions_total`.

- `decision` of the response and the header field `tollgate-decision-id` name the record. Its `detail` says more than the
  caller may read, such as which rule refused or which object does not exist.
- Fronts are those of decision records. `all` are those for which the reason makes sense.
- With `extensions.compat: argocd`, extensions answer with Argo CD's status in place of the one here.
- Records of requests that passed have the reason `allowed`, `preflight` (of a browser) or `to_console`. `cancelled` means
  that the client disconnected. A record with `ended` has the reason for which the gateway ended the exchange later.
- The [admission webhook](../admission.md#reasons) and [connectors](../connectors.md) have their own reasons.
";

pub(super) fn page(reasons: &[Reason]) -> Result<String> {
    let mut page = format!("{INTRODUCTION}\n## Denials\n\n");
    for reason in reasons {
        let statuses: Vec<String> = reason.statuses.iter().map(ToString::to_string).collect();
        let statuses = if statuses.is_empty() {
            "any status".to_owned()
        } else {
            statuses.join(" or ")
        };
        let note = format!("{statuses}; {}", reason.fronts);
        page.push_str(&entry(&reason.code, &note, &reason.meaning));
    }
    Ok(page)
}
