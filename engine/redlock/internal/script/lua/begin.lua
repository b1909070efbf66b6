-- KEYS: the key of the set, the prefix of the data.
-- ARGV: marker, prefix of channels, kind, session, epoch, low-water mark, claim; then what the kind
-- needs.
local marker = redis.pcall('HGET', KEYS[1], 'marker')
if marker ~= ARGV[1] then
  if not marker then
    return redis.error_reply('LKGONE the server has no marker of a set')
  end
  if type(marker) == 'table' then
    return redis.error_reply('LKDATA key "' .. KEYS[1] .. '" can not be read by HGET: ' .. marker.err)
  end
  return redis.error_reply('LKOTHER ' .. marker)
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local data, channel, kind, sid, id = KEYS[2], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[7]
local epoch, mark = tonumber(ARGV[5]), tonumber(ARGV[6])
