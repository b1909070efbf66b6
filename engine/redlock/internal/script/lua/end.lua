
-- The frequent case: the end of a vote for one path that nobody waits for, while nothing is due.
-- Everything else, errors too, is for the general part: nothing is written before.
do
  local skey, ckey = data .. 's:' .. sid, 'c' .. id
  local s = redis.pcall('HMGET', skey, 'e', 'l', ckey)
  local g = redis.pcall('MGET', data .. 'last', data .. 'due')
  local low, n, due = tonumber(s[2]), tonumber(id), tonumber(g[2])
  if s[3] and s[1] == ARGV[5] and low and due and now >= (tonumber(g[1]) or now + 1) and now < due and
      mark <= math.min(low + 8, n) then
    local ok, c = pcall(cmsgpack.unpack, s[3])
    local known, w = pcall(cmsgpack.unpack, ok and type(c) == 'table' and #c == 12 and c[12])
    local name = known and type(w) == 'table' and #w == 16 and type(w[3]) == 'table' and #w[3] == 1 and w[3][1]
    if type(name) == 'string' and c[1] == 2 and c[6] == 0 and type(c[11]) == 'table' and #c[11] == 0 and
        type(c[3]) == 'number' and type(w[1]) == 'number' then
      local pkey = data .. 'p:' .. name
      local text = redis.pcall('GET', pkey)
      local whole, p = pcall(cmsgpack.unpack, text)
      if whole and type(p) == 'table' and #p == 5 and p[2] == sid and p[3] == n and p[5] == false and
          type(p[1]) == 'number' and type(p[4]) == 'number' then
        local record = '\156' .. cmsgpack.pack(3, true, c[3], 0, 0, 0, 0, tonumber(ARGV[8]), '', p[1]) .. '\144' ..
          cmsgpack.pack(c[12])
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
        redis.call('SET', pkey, cmsgpack.pack({ p[1], '', 0, p[4], false }), 'PX',
          string.format('%d', 60000 + math.ceil(math.max(0, p[4] - now) / 1000)))
        redis.call('SET', data .. 'last', string.format('%d', now))
        return '\152' .. cmsgpack.pack(1, now, 0, 0) .. '\145\220\0\17' ..
          cmsgpack.pack(n, 3, tonumber(ARGV[8]), '', w[1], 0, p[1], 0, c[3], false, 0) ..
          '\144\194\0\0\144\144\144\194\160'
      end
    end
  end
end
