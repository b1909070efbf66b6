-- KEYS: the key of the set, the prefix of the data.
-- ARGV: marker, prefix of channels, session, epoch; then six for each request: kind, low-water mark,
-- claim, and three that depend on the kind. There are several requests only if all are Claims and Ends.
-- The reply is a list with one entry for each request: packed, or an error.
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
local data, channel, sid, epoch = KEYS[2], ARGV[2], ARGV[3], tonumber(ARGV[4])
local skey = data .. 's:' .. sid
local kind, mark, id, a1, a2, a3 -- of the request that is executed

-- sweep returns the fields of the session that a rise of the low-water mark from low to high makes
-- superfluous: claims that ended as the session asked, below the mark. It looks when the mark passes a
-- multiple of eight.
local function sweep(low, high)
  local first, fields, drop = low - low % 8, {}, {}
  if high - high % 8 <= first then
    return drop
  end
  if high < low + 1000 then
    for i = first, high - 1 do
      fields[#fields + 1] = string.format('c%d', i)
    end
    for i, text in ipairs(redis.call('HMGET', skey, unpack(fields))) do
      if text and string.sub(text, 1, 3) == '\156\3\195' then
        drop[#drop + 1] = fields[i]
      end
    end
    return drop
  end
  fields = redis.call('HGETALL', skey)
  for i = 1, #fields, 2 do
    local n = tonumber(string.match(fields[i], '^c(%d+)$'))
    if n and n < high and string.sub(fields[i + 1], 1, 3) == '\156\3\195' then
      drop[#drop + 1] = fields[i]
    end
  end
  return drop
end

-- delete removes fields of the session. Lua can't pass more than some thousand arguments at once.
local function delete(fields)
  for i = 1, #fields, 1000 do
    redis.call('HDEL', skey, unpack(fields, i, math.min(i + 999, #fields)))
  end
end
