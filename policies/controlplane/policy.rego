# What Argo CD itself may not do in a cluster, although the gateway would let it.
#
# Argo CD's controller and server reach an enrolled cluster through the gateway
# (docs/behind-argocd.md). The gateway holds each request to the accounts and projects of
# Applications, and then asks this file. docs/reference/policy-inputs.md lists every field of `input`.
#
#   {"allow": true, "reason": "…"}     the cluster decides, by the rights of `input.identity`
#   {"allow": false, "reason": "…"}    refused, and Argo CD shows the reason
#
# Any other outcome (no answer, an error, too slow) refuses the request.
#
# Argo CD keeps a copy of each cluster, which it fills with reads that name no account. It
# retries until they work: if you refuse them for one kind, exclude that kind in
# `argocd-cm` (`resource.exclusions`), or set `resource.respectRBAC`.
package tollgate.controlplane

default decision := {"allow": false, "reason": "the request is not allowed"}

decision := {"allow": false, "reason": min(deny)} if {
	count(deny) > 0
} else := {"allow": true, "reason": "allowed"}

# ------------------------------------------------------------------------------
# Your own denials: texts that Argo CD shows. One is enough to deny.
# ------------------------------------------------------------------------------

# Applications that do not change for now have this label; see data/labels.yaml. Argo CD
# still compares them.
deny contains "the application is frozen" if {
	changes
	some key, value in data.labels.frozen
	input.application.labels[key] == value
}

# Example: nothing changes in production on a Friday evening, regardless of who or what
# started the sync. Remove the `#` in front of the lines to use it, and add a case to
# cases.yaml.
#
# deny contains "production does not change on Friday after 16:00" if {
# 	changes
# 	input.cluster.name == "production"
# 	now := time.parse_rfc3339_ns(input.time)
# 	time.weekday([now, "Europe/Berlin"]) == "Friday"
# 	time.clock([now, "Europe/Berlin"])[0] >= 16
# }

# Whether the cluster is to store a change.
changes if {
	input.access == "write"
	not input.dryRun
}
