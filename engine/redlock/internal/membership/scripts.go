package membership

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"
)

// A Script is Lua that runs at the server in one step.
type Script struct {
	Source string
	SHA    func() string // of Source, by which servers know it
}

func newScript(source string) *Script {
	return &Script{Source: source, SHA: sync.OnceValue(func() string {
		sum := sha1.Sum([]byte(source))
		return hex.EncodeToString(sum[:])
	})}
}

// Every script has KEYS[1], the hash of the record. A script that changes the record returns 1, or 0
// if the record is no longer as the caller observed it; then it has changed nothing.

// runID defines run, the id of the server's process.
const runID = `
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
`

// RunID is a script without keys that returns the run id of the process.
const RunID = runID + `return run`

// unchanged returns 0 unless the record is as it was observed: ARGV[1..5] are the run id of the process,
// gen, run_id, durable, marker; "" where the record has no such field.
const unchanged = runID + `
local r = redis.call('HMGET', KEYS[1], 'gen', 'run_id', 'durable', 'marker')
if run ~= ARGV[1] then return 0 end
for i = 1, 4 do
	if (r[i] or '') ~= ARGV[i + 1] then return 0 end
end
`

// Commands are the commands that the scripts execute: a user of an ACL needs them.
func Commands() []string {
	return []string{
		"DEL", "GET", "HDEL", "HEXISTS", "HGET", "HGETALL", "HMGET", "HSET", "INFO", "PUBLISH", "SET", "TIME", "UNLINK",
		"ZCARD", "ZREVRANGE",
	}
}

var (
	// announce publishes ARGV[2] on channel ARGV[1], together with the run id of the process. So a
	// subscriber knows which process its connection leads to.
	announce = newScript(runID + `return redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. run)`)

	observe = newScript(runID + `
local t = redis.call('TIME')
local all = redis.call('HGETALL', KEYS[1])
local reply = {run, t[1], t[2]}
for i = 1, #all do reply[i + 3] = all[i] end
return reply`)

	// tag: ARGV[6..10] are gen, durable, n, index, names.
	tag = newScript(unchanged + `
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'gen', ARGV[6], 'run_id', run, 'durable', ARGV[7], 'n', ARGV[8], 'index', ARGV[9],
	'names', ARGV[10])
return 1`)

	// relabel: ARGV[6] is durable. It is also for a member whose server has become durable, or no
	// longer is. A record that was not durable is not carried over a restart.
	relabel = newScript(unchanged + `
if r[2] ~= run and r[3] ~= '1' then return 0 end
redis.call('HSET', KEYS[1], 'run_id', run, 'durable', ARGV[6])
return 1`)

	// commit: KEYS[2] is the floor of the data, ARGV[6] the marker, ARGV[7] the least floor.
	commit = newScript(unchanged + `
if r[2] ~= run or r[4] then return 0 end
local t = redis.call('TIME')
local out = redis.call('HGET', KEYS[1], 'out')
if ARGV[8] == 'out' and (not out or tonumber(out) > t[1] * 1000000 + t[2]) then return 0 end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[7]) then redis.call('SET', KEYS[2], ARGV[7]) end
redis.call('HDEL', KEYS[1], 'out')
redis.call('HSET', KEYS[1], 'marker', ARGV[6])
return 1`)

	// merge: ARGV[1] is the run id of the process, ARGV[2] the set, ARGV[3...] the generations. It
	// raises those of the marker. A server that is no member keeps its record.
	merge = newScript(runID + `
local m = redis.call('HMGET', KEYS[1], 'marker', 'run_id')
if run ~= ARGV[1] or m[2] ~= run or not m[1] then return 0 end
local set, list = string.match(m[1], '^(%x+):([%d.]+)$')
if set ~= ARGV[2] then return 0 end
local merged = {}
for g in string.gmatch(list, '%d+') do
	local other = ARGV[#merged + 3]
	if not other then return 0 end
	merged[#merged + 1] = tonumber(other) > tonumber(g) and other or g
end
if #merged ~= #ARGV - 2 then return 0 end
redis.call('HSET', KEYS[1], 'marker', set .. ':' .. table.concat(merged, '.'))
return 1`)

	// ends: KEYS[2] and KEYS[3] are the sessions by end, and the floor. It returns the run id, the
	// marker, the microseconds until the last session ends, the floor, and the number of sessions.
	ends = newScript(runID + `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local left = last[2] and math.max(0, tonumber(last[2]) - now) or 0
return {run, redis.call('HGET', KEYS[1], 'marker') or '', string.format('%.0f', math.ceil(left)),
	redis.call('GET', KEYS[3]) or '0', string.format('%.0f', redis.call('ZCARD', KEYS[2]))}`)

	// putOut: ARGV[6] is how long the server stays out, in microseconds; KEYS[2] is the floor of its
	// new data, ARGV[7] the least floor.
	putOut = newScript(unchanged + `
if r[2] ~= run or r[4] or redis.call('HEXISTS', KEYS[1], 'out') == 1 then return 0 end
local t = redis.call('TIME')
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[7]) then redis.call('SET', KEYS[2], ARGV[7]) end
redis.call('HSET', KEYS[1], 'out', string.format('%.0f', t[1] * 1000000 + t[2] + ARGV[6]))
return 1`)

	// sweep removes KEYS[2...] if the marker is still ARGV[1]: so a slow caller never removes data of
	// a generation that it does not know.
	sweep = newScript(`
if redis.call('HGET', KEYS[1], 'marker') ~= ARGV[1] then return 0 end
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1`)

	// raiseFloor: KEYS[2] is the floor, ARGV[1] the marker, ARGV[2] the least floor.
	raiseFloor = newScript(`
if redis.call('HGET', KEYS[1], 'marker') ~= ARGV[1] then return 0 end
if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2]) end
return 1`)

	// forget removes the record: the server is empty then.
	forget = newScript(`return redis.call('DEL', KEYS[1])`)
)
