# Who may ask what of a cluster.
#
# The gateway asks this file about every request below /k8s-proxy/, after the
# agent's `user_access` let the person in. It hands over what it knows as `input`
# (docs/reference/policy-inputs.md lists every field) and carries out the rule `decision` below:
#
#   {"allow": true, "reason": "…"}     the request goes to the cluster
#   {"allow": false, "reason": "…"}    the caller gets 403 and the reason
#
# Any other outcome (no answer, an error, too slow) is a denial.
#
# As it stands the file lets everything through and leaves it to the cluster's
# RBAC, but for agents that data/agents.yaml narrows. Change it to your needs, add
# your cases to cases.yaml, and try both with `tollgate policy test`.
package tollgate.kubernetes

# The answer when nothing below says otherwise.
default decision := {"allow": false, "reason": "the request is not allowed"}

decision := {"allow": false, "reason": min(deny)} if {
	count(deny) > 0
} else := {"allow": true, "reason": "allowed"} if {
	count(input.request.verbs) > 0
}

# ------------------------------------------------------------------------------
# Your own denials: texts the caller sees. One is enough to deny.
# ------------------------------------------------------------------------------

# Example: nobody but CI jobs changes anything in production. `request.verbs` has
# every verb a request needs; look at all of them. Remove the `#` in front of the
# lines to use it, and add a case to cases.yaml.
#
# deny contains "only CI jobs change production" if {
# 	input.agent.cluster == "production"
# 	input.access.type != "ci_job_token"
# 	some verb in input.request.verbs
# 	not verb in {"get", "list", "watch"}
# }

# ------------------------------------------------------------------------------
# What data/agents.yaml narrows. A list that is no list allows nothing.
# ------------------------------------------------------------------------------
narrowed := data.agents[input.agent.name]

# The keys that it has, regardless of their values.
narrows contains key if some key, _ in narrowed

deny contains "the agent does not allow this verb" if {
	"verbs" in narrows
	verbs := narrowed.verbs
	some verb in input.request.verbs
	not listed(verb, verbs)
}

deny contains "the agent does not allow this namespace" if {
	"namespaces" in narrows
	input.request.resourceRequest
	not namespace_allowed
}

deny contains "the agent does not allow this resource" if {
	"resources" in narrows
	input.request.resourceRequest
	not resource_allowed
}

namespace_allowed if listed(input.request.namespace, narrowed.namespaces)

resource_allowed if listed(resource, narrowed.resources)

# Subresources are named, or all of them with `*`.
resource_allowed if {
	input.request.subresource
	listed(sprintf("%s/*", [plain_resource]), narrowed.resources)
}

listed(name, list) if {
	is_array(list)
	some one in list
	one == name
}

# `deployments.apps/scale`.
resource := sprintf("%s/%s", [plain_resource, input.request.subresource]) if {
	input.request.subresource
} else := plain_resource

plain_resource := input.request.resource if {
	input.request.apiGroup == ""
} else := sprintf("%s.%s", [input.request.resource, input.request.apiGroup])
