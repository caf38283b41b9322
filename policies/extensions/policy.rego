# Who may call a proxy extension.
#
# The gateway asks this file about requests to
# /api/v1/extensions/<name>/…, after it knows who is asking. It hands over what
# it knows as `input` (docs/reference/policy-inputs.md lists every field) and carries out the
# rule `decision` below:
#
#   {"allow": true, "reason": "…"}     the request is forwarded
#   {"allow": false, "reason": "…"}    the caller gets 403 and the reason
#
# Any other outcome (no answer, an error, too slow) is a denial.
#
# As it stands the file repeats what Argo CD does. Change it to your needs, add
# your cases to cases.yaml, and try both with `tollgate policy test`.
package tollgate.extensions

# The answer when nothing below says otherwise.
default decision := {"allow": false, "reason": "the request is not allowed"}

# Your own denials win, then the gateway's rules decide.
decision := {"allow": false, "reason": min(deny)} if {
	count(deny) > 0
} else := {"allow": true, "reason": "allowed"} if {
	permitted
} else := {"allow": false, "reason": refusal}

# ------------------------------------------------------------------------------
# Your own denials: texts the caller sees. One is enough to deny.
# ------------------------------------------------------------------------------

# Example: members of the group `viewers` may look, not touch. Remove the `#` in
# front of the lines to use it, and add a case to cases.yaml.
#
# deny contains "viewers may only read" if {
# 	"viewers" in input.principal.groups
# 	not input.request.method in {"GET", "HEAD", "OPTIONS"}
# }

# Groups that never get through, from data/blocked.yaml.
deny contains "your group may not use extensions" if {
	data.blocked.groups != []
	some group in input.principal.groups
	group in data.blocked.groups
}

# ------------------------------------------------------------------------------
# Who may pass. `input.rbac` has the verdicts of policy.csv.
# ------------------------------------------------------------------------------

# An extension about one application: the caller may see the application and
# invoke the extension, the application is in the project the request names (or
# names none), and the project permits the cluster the application deploys to.
permitted if {
	input.extension.scope == "application"
	input.rbac.applications_get.allow
	input.rbac.extensions_invoke.allow
	input.application.project == input.request.project
	input.project.name == input.request.project
	input.destination.permitted
} else if {
	# An extension about a project.
	input.extension.scope == "project"
	input.rbac.projects_get.allow
	input.rbac.extensions_invoke.allow
	input.project.name == input.request.project
} else if {
	# An extension about nothing in particular: it needs a separate grant.
	input.extension.scope == "global"
	input.rbac.extensions_invoke.allow
}

# ------------------------------------------------------------------------------
# The reason that the caller receives: the first one that applies. None of
# them tells a caller who may not see an application whether it exists.
# ------------------------------------------------------------------------------
refusal := "you may not see this application" if {
	input.extension.scope == "application"
	not input.rbac.applications_get.allow
} else := "you may not see this project" if {
	input.extension.scope == "project"
	not input.rbac.projects_get.allow
} else := "you may not invoke this extension" if {
	not input.rbac.extensions_invoke.allow
} else := "the application is not in the project the request names" if {
	input.extension.scope == "application"
	not input.application.project == input.request.project
} else := "there is no such project" if {
	not input.project.name == input.request.project
} else := "the project does not permit the destination" if {
	input.extension.scope == "application"
	not input.destination.permitted
} else := "the request is not allowed"
