
-- The frequent case: a new claim of one path, which is free and without queue, while nothing is
-- due. Everything else, errors too, is for the general part: nothing is written before.
local name = ARGV[9]
if name ~= '' then
  local skey, ckey, pkey = data .. 's:' .. sid, 'c' .. id, data .. 'p:' .. name
  local s = redis.pcall('HMGET', skey, 'e', 'l', ckey)
  local g = redis.pcall('MGET', data .. 'floor', data .. 'last', data .. 'due', pkey)
  local low, n, floor, due = tonumber(s[2]), tonumber(id), tonumber(g[1]), tonumber(g[3])
  local counter, unsure, ok, p = floor, 0, true, false
  if g[4] then
    ok, p = pcall(cmsgpack.unpack, g[4])
    ok = ok and type(p) == 'table' and p[2] == '' and p[5] == false and #p == 5
    counter, unsure = ok and tonumber(p[1]), ok and tonumber(p[4])
  else
    ok = redis.pcall('EXISTS', pkey) == 0
  end
  if ok and s[3] == false and s[1] == ARGV[5] and low and floor and due and counter and unsure and
      now >= (tonumber(g[2]) or now + 1) and now < due and math.max(low, mark) <= n and
      mark <= low + 8 and
      floor % 1 == 0 and floor >= 0 and counter % 1 == 0 and counter >= 0 and unsure % 1 == 0 and
      unsure >= 0 and math.max(counter, floor, unsure) < 9007199254740992 and
      redis.call('HLEN', skey) < 10000 then
    local vote = counter + 1
    local record = '\156' .. cmsgpack.pack(2, false, now, vote, 0, 0, 0, 0, '', 0) .. '\144' .. cmsgpack.pack(ARGV[8])
    local drop = {}
    for i = low, mark - 1 do
      local field = 'c' .. string.format('%d', i)
      local old = redis.call('HGET', skey, field)
      if old and string.sub(old, 1, 3) == '\156\3\195' then -- ended, as its session asked: forgotten
        drop[#drop + 1] = field
      end
    end
    if #drop > 0 then
      redis.call('HDEL', skey, unpack(drop))
    end
    redis.call('HSET', skey, 'l', string.format('%d', math.max(low, mark)), ckey, record)
    redis.call('MSET', pkey, cmsgpack.pack({ vote, sid, n, unsure, false }),
      data .. 'floor', string.format('%d', math.max(floor, vote)), data .. 'last', string.format('%d', now))
    return '\152' .. cmsgpack.pack(1, now, 0, 0) .. '\145\220\0\17' ..
      cmsgpack.pack(n, 2, 0, '', tonumber(ARGV[10]), vote, vote, unsure > now and unsure or 0, now, false, 0) ..
      '\144\194\0\0\144\144\144\194\160'
  end
end
