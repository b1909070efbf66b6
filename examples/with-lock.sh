#!/bin/sh
# Runs a command while it holds a lock of a Lockkeeper server. It needs only curl:
#
#     sh with-lock.sh mydatabase/mytest make test
#
# LOCKKEEPER_HTTP   the server; default: http://127.0.0.1:7421
# LOCKKEEPER_TOKEN  the token, if the server requires one
# CLEANUP           a shell command to run before the release, if the lock is still held
#
# The exit code is the command's; 76 if the lock was lost and the command was ended;
# 1 if the server refused. If the lock is lost, the command gets TERM, and should pass it on to its
# children. "lk run" is more exact: it knows to the second when a lock is lost.
set -u
[ $# -ge 2 ] || { echo "usage: with-lock.sh PATH COMMAND [ARG...]" >&2; exit 2; }
path=$1
shift
# No other job may have this name: all clients that give it have the same hold.
url=${LOCKKEEPER_HTTP:-http://127.0.0.1:7421}/v1/grab/$path?as=$(uname -n)-$$-$(date +%s)

# curl gets the token by stdin, because other users can see the arguments of a program.
headers() {
    echo 'Accept: text/plain'
    [ -z "${LOCKKEEPER_TOKEN:-}" ] || echo "Authorization: Bearer $LOCKKEEPER_TOKEN"
}

# ask SECONDS METHOD PARAMETERS prints the answer and its status code: "ok 17 200",
# "wait 2 202", or a problem in JSON. The code is 000 without an answer in time.
ask() {
    headers | curl -sS -m "$1" -X "$2" -H @- "$url$3" -w '%{http_code}' 2>/dev/null | tr '\n' ' '
}

while :; do
    answer=$(ask 70 POST '&wait=60')
    case $answer in
    ok*200) break ;;
    *draining*) ;;
    wait*202 | *429 | *5[0-9][0-9] | *000) sleep 1; continue ;;
    esac
    echo "$path: ${answer:-no answer}" >&2
    exit 1
done
fence=${answer#ok }
fence=${fence%% *}

"$@" <&0 &
work=$!

# The hold lives for 60 s, counted from when the last answered heartbeat was sent. After two heartbeats
# without an answer, 40 s after the last good one, the script ends the command.
(
    missed=0
    while sleep "${BEAT:-15}"; do
        case $(ask 5 POST "&fence=$fence") in
        ok*200) missed=0 ;;
        *410 | *400) break ;;
        *) missed=$((missed + 1)); [ $missed -lt 2 ] || break ;;
        esac
    done
    kill $work
) >/dev/null 2>&1 &
beat=$!

stopped=
finish() {
    code=$?
    trap - EXIT HUP INT TERM
    kill $work 2>/dev/null
    wait $work 2>/dev/null
    case $(ask 5 POST "&fence=$fence") in
    ok*200) [ -z "${CLEANUP:-}" ] || sh -c "$CLEANUP" ;;
    *) [ $code -ne 143 ] || [ -n "$stopped" ] || { echo "$path: the lock was lost" >&2; code=76; } ;;
    esac
    kill $beat 2>/dev/null
    ask 20 DELETE '' >/dev/null
    exit $code
}
trap finish EXIT
trap 'stopped=yes; exit 129' HUP
trap 'stopped=yes; exit 130' INT
trap 'stopped=yes; exit 143' TERM
wait $work
