/* Programs that do nothing, at the hooks of the others: what a run costs before it begins, by the
 * kernel's run-time statistics, whose two looks at the clock are most of it. No server loads
 * them. */
#include "bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("sk_reuseport")
int nothing_steered(struct sk_reuseport_md *ctx) { return SK_PASS; }

SEC("classifier")
int nothing_answered(struct __sk_buff *ctx) { return TC_ACT_UNSPEC; }
