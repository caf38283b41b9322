# An example for policies/argocd: five rules that Argo CD's RBAC cannot express. Each has its
# table in data/rules.yaml and its cases in cases.yaml. Copy what you need.
package tollgate.argocd

default decision := {"allow": false, "reason": "the request is not allowed"}

# The reason of the caller is written down with the decision.
decision := {"allow": false, "reason": min(deny), "log": log} if {
	count(deny) > 0
} else := {"allow": true, "reason": "allowed", "log": log}

log := {"reason": input.reason} if {
	input.reason
} else := {}

# Every project that the call touches: where the Application is, and where it will be.
projects contains input.request.project

projects contains input.application.project

# ------------------------------------------------------------------------------
# 1. Nobody syncs a frozen project on a Friday evening.
# ------------------------------------------------------------------------------
deny contains sprintf("no syncs of `%s` on Friday after %d:00", [project, data.rules.freeze.hour]) if {
	input.request.resource == "applications"
	input.request.action in {"sync", "override", "action"}
	some project in projects
	project in data.rules.freeze.projects
	now := time.parse_rfc3339_ns(input.time)
	time.weekday([now, data.rules.freeze.zone]) == "Friday"
	time.clock([now, data.rules.freeze.zone])[0] >= data.rules.freeze.hour
}

# ------------------------------------------------------------------------------
# 2. What runs comes from git: nobody syncs local manifests.
# ------------------------------------------------------------------------------
deny contains "manifests come from git only, not from `argocd app sync --local`" if {
	input.request.action == "override"
}

# ------------------------------------------------------------------------------
# 3. No terminal for contractors.
# ------------------------------------------------------------------------------
deny contains "contractors get no terminal" if {
	input.request.resource == "exec"
	some group in input.principal.groups
	group in data.rules.contractors
}

# ------------------------------------------------------------------------------
# 4. A deletion needs both groups.
# ------------------------------------------------------------------------------
deny contains sprintf("a deletion needs the group `%s` as well", [group]) if {
	input.request.resource == "applications"
	input.request.action == "delete"
	some group in data.rules.deletion_groups
	not group in input.principal.groups
}

# ------------------------------------------------------------------------------
# 5. A rollback needs a reason: argocd app rollback … --header 'Tollgate-Reason: …'
# ------------------------------------------------------------------------------
deny contains "say why: add `--header 'Tollgate-Reason: …'`" if {
	input.request.method == "Rollback"
	not input.reason
}
