/bin/ip link set lo up
# It must not serve without it either.
told=$(laneway serve -l 127.0.0.1 -U 11211 --kernel-lane lo 2>&1) && fail "it served: $told"
case "$told" in
*"@REALTIME@"*) say "$told" ;;
*) fail "it was refused for another reason: $told" ;;
esac
