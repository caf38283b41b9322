# What people may not do in Argo CD, although Argo CD would let them.
#
# With `argocd` in the settings, the gateway passes everything that is not its own on to
# argocd-server. Before that it asks this file about each call of Argo CD's API: from the
# web interface, from `argocd` by gRPC or gRPC-Web, and from scripts by REST. A call has
# the same `input.request` by each of these ways. docs/reference/policy-inputs.md lists every field.
#
#   {"allow": true, "reason": "…"}     argocd-server decides, by its own rules
#   {"allow": false, "reason": "…"}    refused, and the caller reads the reason
#
# Any other outcome (no answer, an error, too slow) refuses the call. Files of the web
# interface, webhooks of git servers, badges and Dex are not part of the API.
#
# As it stands the file refuses nothing that Argo CD allows. A call's content is
# read only if a rule needs it. Add your rules and cases, and try both with
# `tollgate policy test`.
package tollgate.argocd

default decision := {"allow": false, "reason": "the request is not allowed"}

decision := {"allow": false, "reason": min(deny)} if {
	count(deny) > 0
} else := {"allow": true, "reason": "allowed"}

# ------------------------------------------------------------------------------
# Your own denials: texts the caller sees. One is enough to deny.
# ------------------------------------------------------------------------------

# Services that nobody may call; see data/services.yaml.
deny contains "this service of Argo CD is switched off" if {
	input.request.service in data.services.off
}

# A terminal needs a session at Argo CD, too.
deny contains "sign in to use a terminal" if {
	input.request.resource == "exec"
	input.principal.kind == "anonymous"
}

# Example: nobody syncs production on a Friday evening. Remove the `#` in front of the
# lines to use it, and add a case to cases.yaml. Tollgate has more in docs/examples/policies/argocd.
#
# deny contains "no syncs of production on Friday after 16:00" if {
# 	input.request.method == "Sync"
# 	input.application.project == "production"
# 	now := time.parse_rfc3339_ns(input.time)
# 	time.weekday([now, "Europe/Berlin"]) == "Friday"
# 	time.clock([now, "Europe/Berlin"])[0] >= 16
# }
