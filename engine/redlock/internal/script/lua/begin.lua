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

-- sweep returns the fields of the session at key that a rise of the low-water mark from low to mark
-- makes superfluous: claims that ended as the session asked, below the mark. It looks when the mark
-- passes a multiple of eight.
local function sweep(key, low)
  local first, fields, drop = low - low % 8, {}, {}
  if mark - mark % 8 > first then
    for i = first, mark - 1 do
      fields[#fields + 1] = string.format('c%d', i)
    end
    for i, text in ipairs(redis.call('HMGET', key, unpack(fields))) do
      if text and string.sub(text, 1, 3) == '\156\3\195' then
        drop[#drop + 1] = fields[i]
      end
    end
  end
  return drop
end
