
-- The frequent case: a new claim of one path, which is free and without queue, while nothing is
-- due. Everything else, errors too, is for the general part: nothing is written before.
local name = ARGV[9]
if name ~= '' then
  local call, pack, format = redis.call, cmsgpack.pack, string.format
  local skey, ckey, pkey = data .. 's:' .. sid, 'c' .. id, data .. 'p:' .. name
  local s = redis.pcall('HMGET', skey, 'e', 'l', ckey)
  local g = redis.pcall('MGET', data .. 'floor', data .. 'last', data .. 'due', pkey)
  local low, n, floor, due = tonumber(s[2]), tonumber(id), tonumber(g[1]), tonumber(g[3])
  local ok, counter, unsure, end_, holder, holderID, waits = true, floor, 0
  if g[4] then
    ok, end_, counter, holder, holderID, unsure, waits = pcall(cmsgpack.unpack_limit, g[4], 5, 1)
    ok = ok and end_ == -1 and string.byte(g[4]) == 149 and holder == '' and waits == false and
      type(counter) == 'number' and type(unsure) == 'number'
  else
    ok = redis.pcall('EXISTS', pkey) == 0
  end
  if ok and s[3] == false and s[1] == ARGV[5] and low and floor and due and
      now >= (tonumber(g[2]) or now + 1) and now < due and n >= low and n >= mark and mark < low + 1000 and
      floor % 1 == 0 and floor >= 0 and counter % 1 == 0 and counter >= 0 and unsure % 1 == 0 and
      unsure >= 0 and math.max(counter, floor, unsure) < 9007199254740992 and
      (n < low + 1000 or call('HLEN', skey) < 10000) then
    local vote = counter + 1
    if mark > low then
      local drop = sweep(skey, low)
      if drop[1] then
        call('HDEL', skey, unpack(drop))
      end
      low = mark
    end
    call('HSET', skey, 'l', format('%d', low), ckey,
      '\156' .. pack(2, false, now, vote, 0, 0, 0, 0, '', 0) .. '\144' .. pack(ARGV[8]))
    call('MSET', pkey, '\149' .. pack(vote, sid, n, unsure, false),
      data .. 'floor', format('%d', math.max(floor, vote)), data .. 'last', format('%d', now))
    return '\152' .. pack(1, now, 0, 0) .. '\145\220\0\17' ..
      pack(n, 2, 0, '', tonumber(ARGV[10]), vote, vote, unsure > now and unsure or 0, now, false, 0) ..
      '\144\194\0\0\144\144\144\194\160'
  end
end
