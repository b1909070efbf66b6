
-- The frequent case: the end of a vote for one path that nobody waits for, while nothing is due.
-- Everything else, errors too, is for the general part: nothing is written before.
do
  local call, pack, format, some = redis.call, cmsgpack.pack, string.format, cmsgpack.unpack_limit
  local skey, ckey = data .. 's:' .. sid, 'c' .. id
  local s = redis.pcall('HMGET', skey, 'e', 'l', ckey)
  local g = redis.pcall('MGET', data .. 'last', data .. 'due')
  local low, n, due = tonumber(s[2]), tonumber(id), tonumber(g[2])
  if s[3] and s[1] == ARGV[5] and low and due and now >= (tonumber(g[1]) or now + 1) and
      now < due and mark < low + 1000 and string.byte(s[3]) == 156 then
    local ok, end_, state, _, since, _, _, lapsed, _, _, _, _, asks, want = pcall(some, s[3], 12, 1)
    ok = ok and end_ == -1 and state == 2 and lapsed == 0 and type(since) == 'number' and
      type(asks) == 'table' and #asks == 0 and type(want) == 'string' and string.sub(want, 1, 3) == '\220\0\16'
    local known, _, revision, _, names = pcall(some, ok and want or '', 3, 3)
    local name = ok and known and type(names) == 'table' and #names == 1 and names[1]
    if type(name) == 'string' and type(revision) == 'number' then
      local pkey = data .. 'p:' .. name
      local text = redis.pcall('GET', pkey)
      local whole, last_, counter, holder, holderID, unsure, waits = pcall(some, text, 5, 1)
      if whole and last_ == -1 and string.byte(text) == 149 and holder == sid and holderID == n and
          waits == false and type(counter) == 'number' and type(unsure) == 'number' then
        local reason = tonumber(ARGV[8])
        local drop = mark > low and sweep(skey, low) or {}
        low = math.max(low, mark)
        if n < low then -- nobody may ask for it any more
          drop[#drop + 1] = ckey
          call('HSET', skey, 'l', format('%d', low))
        else
          call('HSET', skey, 'l', format('%d', low), ckey,
            '\156' .. pack(3, true, since, 0, 0, 0, 0, reason, '', counter) .. '\144' .. pack(want))
        end
        if drop[1] then
          call('HDEL', skey, unpack(drop))
        end
        call('SET', pkey, '\149' .. pack(counter, '', 0, unsure, false),
          'PX', format('%d', 60000 + math.ceil(math.max(0, unsure - now) / 1000)))
        call('SET', data .. 'last', format('%d', now))
        return '\152' .. pack(1, now, 0, 0) .. '\145\220\0\17' ..
          pack(n, 3, reason, '', revision, 0, counter, 0, since, false, 0) ..
          '\144\194\0\0\144\144\144\194\160'
      end
    end
  end
end
