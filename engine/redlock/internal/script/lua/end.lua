
-- A frequent case: the end of a vote for one path, while nothing is due and nobody follows. Nobody waits
-- for the path, or the first in line, which wants nothing else, gets the vote. Everything else, errors too,
-- is for the general part: nothing is written before.

-- successor returns the first in line for the path, and whether others wait too; nil if that is for
-- the general part. Nobody in line outranks the first, so nobody asks it to yield.
local function successor(name)
  local some, format = cmsgpack.unpack_limit, string.format
  local line = redis.pcall('ZRANGE', data .. 'q:' .. name, 0, 1)
  local m = line[1] or ''
  local of, digits = string.match(m, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d(.*)%z(%d+)$')
  if not of then
    return
  end
  local n = tonumber(digits)
  local t = { member = m, id = n, key = data .. 's:' .. of, field = format('c%d', n), sid = of }
  local f = redis.pcall('HMGET', t.key, 'e', 'o', t.field)
  t.epoch, t.to = tonumber(f[1]), f[2]
  local ok, end_, state, finished, since, vote, stated, lapsed, lapseEnd, reason, text, counter, asks, want =
    pcall(some, f[3] or '', 12, 1)
  if not (ok and end_ == -1 and string.byte(f[3]) == 156 and state == WAITING and finished == false and
      vote == 0 and lapsed == 0 and lapseEnd == 0 and reason == 0 and text == '' and type(since) == 'number' and
      type(stated) == 'number' and type(counter) == 'number' and type(asks) == 'table' and #asks == 0 and
      type(want) == 'string' and string.sub(want, 1, 3) == '\220\0\16' and t.epoch and t.epoch % 1 == 0 and t.to) then
    return
  end
  local known, _, revision, priority, names, ticket = pcall(some, want, 4, 3)
  if known and type(revision) == 'number' and type(priority) == 'number' and type(ticket) == 'number' and
      type(names) == 'table' and #names == 1 and names[1] == name and
      format('%07d%016d', MAX_PRIORITY - priority, ticket) .. of .. '\0' .. format('%016d', n) == m then
    t.stated, t.counter, t.want, t.revision = stated, counter, want, revision
    return t, line[2] ~= nil
  end
end

-- endOne executes an End: a1 is the reason. nil: it is for the general part.
local function endOne()
  local call, pack, format, some = redis.call, cmsgpack.pack, string.format, cmsgpack.unpack_limit
  local ckey = 'c' .. id
  local s = redis.pcall('HMGET', skey, 'e', 'l', ckey)
  local g = redis.pcall('MGET', data .. 'last', data .. 'due', data .. 'floor', data .. 'followed')
  local low, n, due, floor = tonumber(s[2]), tonumber(id), tonumber(g[2]), tonumber(g[3])
  if s[3] and s[1] == ARGV[4] and low and due and now >= (tonumber(g[1]) or now + 1) and
      now < due and not g[4] and string.byte(s[3]) == 156 then
    local ok, end_, state, _, since, _, _, lapsed, _, _, _, _, asks, want = pcall(some, s[3], 12, 1)
    ok = ok and end_ == -1 and state == 2 and lapsed == 0 and type(since) == 'number' and
      type(asks) == 'table' and #asks == 0 and type(want) == 'string' and string.sub(want, 1, 3) == '\220\0\16'
    local known, _, revision, _, names = pcall(some, ok and want or '', 3, 3)
    local name = ok and known and type(names) == 'table' and #names == 1 and names[1]
    if type(name) == 'string' and type(revision) == 'number' then
      local pkey = data .. 'p:' .. name
      local text = redis.pcall('GET', pkey)
      local alone, next, more = false, nil, false
      local whole, last_, counter, holder, holderID, unsure, waits = pcall(some, text, 5, 1)
      if whole and last_ == -1 and string.byte(text) == 149 and holder == sid and holderID == n and
          type(counter) == 'number' and type(unsure) == 'number' then
        alone = waits == false
        if waits == true and floor and floor % 1 == 0 and counter % 1 == 0 and counter >= 0 and
            math.max(counter, floor, unsure) < 9007199254740992 then
          next, more = successor(name)
        end
      end
      if next or alone then
        local reason = tonumber(a1)
        local drop = mark > low and sweep(low, mark) or {}
        low = math.max(low, mark)
        if n < low then -- nobody may ask for it any more
          drop[#drop + 1] = ckey
          call('HSET', skey, 'l', format('%d', low))
        else
          call('HSET', skey, 'l', format('%d', low), ckey,
            '\156' .. pack(3, true, since, 0, 0, 0, 0, reason, '', counter) .. '\144' .. pack(want))
        end
        delete(drop)
        if next then
          local vote = counter + 1
          call('HSET', next.key, next.field, '\156' ..
            pack(HELD, false, now, vote, next.stated, 0, 0, 0, '', next.counter) .. '\144' .. pack(next.want))
          call('ZREM', data .. 'q:' .. name, next.member)
          call('MSET', pkey, '\149' .. pack(vote, next.sid, next.id, unsure, more),
            data .. 'floor', format('%d', math.max(floor, vote)), data .. 'last', format('%d', now))
          call('PUBLISH', channel .. next.to, '\149' .. pack(next.to, next.sid, next.epoch, now) ..
            '\220\0\17' .. pack(next.id, HELD, 0, '', next.revision, vote, vote, unsure > now and unsure or 0, now,
            false, 0) .. '\144\194\0\0\144\144')
        else
          call('SET', pkey, '\149' .. pack(counter, '', 0, unsure, false),
            'PX', format('%d', 60000 + math.ceil(math.max(0, unsure - now) / 1000)))
          call('SET', data .. 'last', format('%d', now))
        end
        return '\152' .. pack(1, now, 0, 0) .. '\145\220\0\17' ..
          pack(n, 3, reason, '', revision, 0, counter, 0, since, false, 0) ..
          '\144\194\0\0\144\144\144\194\160'
      end
    end
  end
end
