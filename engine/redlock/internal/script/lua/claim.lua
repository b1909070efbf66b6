
-- A frequent case: a new claim of one path, while nothing is due. The path is free and without
-- queue; or it is taken, nobody asks the holder to yield, and the claim does not either. Everything
-- else, errors too, is for the general part: nothing is written before.

-- blocker returns the packed state of a claim that has the vote for the path, or waits for it as the
-- entry member of the queue; nil if that is for the general part.
local function blocker(name, of, n, member)
  local f = redis.pcall('HMGET', data .. 's:' .. of, 'u', string.format('c%d', n))
  local ends = tonumber(f[1])
  local ok, end_, state, _, since, vote, _, lapsed, _, _, _, _, asks, text =
    pcall(cmsgpack.unpack_limit, f[2] or '', 12, 1)
  if not (ok and end_ == -1 and string.byte(f[2]) == 156 and ends and ends > now and lapsed == 0 and
      state == (member and WAITING or HELD) and type(since) == 'number' and type(vote) == 'number' and
      type(asks) == 'table' and #asks == 0 and type(text) == 'string' and string.byte(text) == 220) then
    return
  end
  local known, w = pcall(cmsgpack.unpack, text)
  if not (known and type(w) == 'table' and #w == 16 and type(w[2]) == 'number' and type(w[4]) == 'number' and
      type(w[9]) == 'number' and type(w[14]) == 'string' and type(w[15]) == 'string' and type(w[16]) == 'string' and
      (not member or string.format('%07d%016d', MAX_PRIORITY - w[2], w[4]) .. of .. '\0' ..
        string.format('%016d', n) == member)) then
    return
  end
  local announced = not member and w[9] > 0 and since + w[9] or 0
  return '\157' .. cmsgpack.pack(of, n, name, member ~= nil, vote, w[2], w[4], since, ends, announced, w[14], w[15],
    w[16])
end

-- line returns the entry of the new claim in the queue of a path that is taken, its position, and the
-- packed blockers; nil if that is for the general part: a try, or a claim that may steal.
local function line(name, holder, holderID)
  local ok, _, _, priority, names, ticket, try, steal = pcall(cmsgpack.unpack_limit, a1, 6, 3)
  if not ok or try ~= false or steal ~= NO_STEAL then
    return
  end
  local key = data .. 'q:' .. name
  local m = string.format('%07d%016d', MAX_PRIORITY - priority, ticket) .. sid .. '\0' .. string.format('%016d', id)
  local ahead, all = redis.pcall('ZLEXCOUNT', key, '-', '(' .. m), { blocker(name, holder, holderID) }
  if type(ahead) ~= 'number' or not all[1] then
    return
  end
  for i, x in ipairs(ahead > 0 and redis.call('ZRANGE', key, 0, math.min(ahead, NAMED_AHEAD) - 1) or {}) do
    local of, digits = string.match(x, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d(.*)%z(%d+)$')
    all[i + 1] = of and blocker(name, of, tonumber(digits), x)
    if not all[i + 1] then
      return
    end
  end
  return m, 1 + ahead, string.char(144 + #all) .. table.concat(all)
end

-- claimOne executes a Claim: a1 is the want, a2 the path if it is the only one, a3 the revision. nil: it is
-- for the general part.
local function claimOne()
  local name = a2
  if name == '' then
    return
  end
  local call, pack, format = redis.call, cmsgpack.pack, string.format
  local ckey, pkey = 'c' .. id, data .. 'p:' .. name
  local s = redis.pcall('HMGET', skey, 'e', 'l', ckey)
  local g = redis.pcall('MGET', data .. 'floor', data .. 'last', data .. 'due', pkey)
  local low, n, floor, due = tonumber(s[2]), tonumber(id), tonumber(g[1]), tonumber(g[3])
  local member, position, blockers
  local ok, counter, unsure, end_, holder, holderID, waits = true, floor, 0, -1, '', 0, false
  if g[4] then
    ok, end_, counter, holder, holderID, unsure, waits = pcall(cmsgpack.unpack_limit, g[4], 5, 1)
    ok = ok and end_ == -1 and string.byte(g[4]) == 149 and (holder ~= '' or waits == false) and
      type(counter) == 'number' and type(unsure) == 'number'
  else
    ok = redis.pcall('EXISTS', pkey) == 0
  end
  if ok and s[3] == false and s[1] == ARGV[4] and low and floor and due and
      now >= (tonumber(g[2]) or now + 1) and now < due and n >= low and n >= mark and
      floor % 1 == 0 and floor >= 0 and counter % 1 == 0 and counter >= 0 and unsure % 1 == 0 and
      unsure >= 0 and math.max(counter, floor, unsure) < 9007199254740992 and
      call('HLEN', skey) < MAX_CLAIMS then
    if holder ~= '' then
      member, position, blockers = line(name, holder, holderID)
    end
    ok = holder == '' or member
  else
    ok = false
  end
  if ok then
    if mark > low then
      delete(sweep(low, mark))
      low = mark
    end
    if member then
      call('HSET', skey, 'l', format('%d', low), ckey,
        '\156' .. pack(WAITING, false, now, 0, 0, 0, 0, 0, '', 0) .. '\144' .. pack(a1))
      call('ZADD', data .. 'q:' .. name, '0', member)
      call('MSET', pkey, '\149' .. pack(counter, holder, holderID, unsure, true), data .. 'last', format('%d', now))
      return '\152' .. pack(1, now, 0, 0) .. '\145\220\0\17' ..
        pack(n, WAITING, 0, '', tonumber(a3), 0, counter, unsure > now and unsure or 0, now, false, 0) ..
        '\144\194\0' .. pack(position) .. blockers .. '\144\144\194\160'
    end
    local vote = counter + 1
    call('HSET', skey, 'l', format('%d', low), ckey,
      '\156' .. pack(2, false, now, vote, 0, 0, 0, 0, '', 0) .. '\144' .. pack(a1))
    call('MSET', pkey, '\149' .. pack(vote, sid, n, unsure, false),
      data .. 'floor', format('%d', math.max(floor, vote)), data .. 'last', format('%d', now))
    return '\152' .. pack(1, now, 0, 0) .. '\145\220\0\17' ..
      pack(n, 2, 0, '', tonumber(a3), vote, vote, unsure > now and unsure or 0, now, false, 0) ..
      '\144\194\0\0\144\144\144\194\160'
  end
end
