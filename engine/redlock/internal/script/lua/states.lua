
local function describeBlocker(name, b)
  local w, ends, announced = b.want, b.s.ends, 0
  if b.state == HELD then
    if b.lapsed ~= 0 then
      ends = math.min(ends, b.lapseEnd)
    end
    local ask = shown(b.asks)
    if ask and ask[3] ~= 0 then
      ends = math.min(ends, ask[3])
    end
    if w[9] > 0 then
      announced = b.since + w[9]
    end
  end
  return { b.s.id, b.id, name, b.state == WAITING, b.vote, w[2], w[4], b.since, ends, announced, w[14], w[15], w[16] }
end

-- describeWait returns whether c asks, until when, its position and its blockers. Of each queue it
-- names at most most claims ahead.
local function describeWait(c, most)
  local asking, askEnd, position, blockers, seen = false, 0, 1, {}, {}
  local function add(name, b)
    if #blockers < MAX_BLOCKERS and not seen[b] then
      seen[b] = true
      blockers[#blockers + 1] = describeBlocker(name, b)
    end
  end
  for _, h in ipairs(holders(c)) do
    for _, a in ipairs(h.asks) do
      if a[1] == c.ref then
        asking, askEnd = true, math.max(askEnd, a[3])
      end
    end
  end
  for _, name in ipairs(c.paths) do
    local h = path(name).holder
    if h then
      add(name, h)
    end
  end
  for _, name in ipairs(c.paths) do
    local p = path(name)
    local n = ahead(p, c)
    position = math.max(position, 1 + n)
    for i, m in ipairs(n > 0 and prefix(p, math.min(n, most)) or {}) do
      add(name, claimOfMember(p, m))
    end
  end
  return asking, askEnd, position, blockers
end

-- describe returns the state of c as the array that the engine reads.
local function describe(c, withWant)
  local w = c.want
  local state = { c.id, c.state, c.reason, c.text, w and w[1] or 0, c.vote, c.counter, 0, c.since,
    c.lapsed ~= 0, c.lapseEnd, {}, false, 0, 0, {}, withWant and w and { w } or {} }
  if c.state == ENDED then
    return state
  end
  state[7] = counterOf(c)
  for _, name in ipairs(c.paths) do
    local unsure = path(name).unsure
    if unsure > now then
      state[8] = math.max(state[8], unsure)
    end
  end
  local ask = shown(c.asks)
  if ask then
    state[12] = { ask }
  end
  if c.state == WAITING then
    state[13], state[14], state[15], state[16] = describeWait(c, (withWant or w[5]) and MAX_BLOCKERS or NAMED_AHEAD)
  end
  return state
end

local function describeSession(s)
  local list = {}
  for i, c in ipairs(everyClaim(s)) do
    list[i] = describe(c, true)
  end
  return { s.id, s.epoch, s.ttl, s.ends, s.label[1], s.label[2], s.label[3], list }
end

-- latestEnds returns the ends that are shown, with those of this request, which are not written yet.
local function latestEnds()
  local all = read('ZRANGEBYLEX', data .. 'ends', '[' .. format('%016d', math.max(0, now - ENDS_SHOWN)), '+')
  if not ends[1] then
    return all
  end
  local known, latest = {}, {}
  for _, m in ipairs(all) do
    known[m] = true
  end
  for _, m in ipairs(ends) do
    if not known[m] then
      all[#all + 1], known[m] = m, true
    end
  end
  table.sort(all, below)
  for i = math.max(1, #all - MAX_ENDS + 1), #all do
    latest[#latest + 1] = all[i]
  end
  return latest
end

-- listEnds answers the part of a List that is for followers.
local function listEnds(only)
  write('SET', data .. 'followed', digits(now + FOLLOWED_FOR), 'PX', '60000')
  if reply[7] then
    return
  end
  local some = {}
  for _, m in ipairs(latestEnds()) do
    if only == '' or sub(m, 17, 17 + #only) == only .. '\0' then
      some[#some + 1] = m
    end
  end
  reply[9] = some
end

-- listSessions answers a List: at most limit sessions, and no more after 10000 claims.
local function listSessions(after, limit, only)
  local ids, most = nil, limit + 1
  for _ in pairs(gone) do
    most = most + 1
  end
  if only ~= '' then
    ids = { only }
  else
    ids = read('ZRANGEBYLEX', data .. 'names', after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, most)
  end
  local claims = 0
  for _, id in ipairs(ids) do
    local s = session(id)
    if not s and only == '' and not gone[id] then
      fail(data .. 'names', 'names a session that does not exist')
    end
    if s and (only == '' or after == '' or below(after, id)) then
      if #reply[6] == limit or claims > MAX_LISTED then
        reply[7] = true
        return
      end
      local state = describeSession(s)
      claims = claims + #state[8]
      reply[6][#reply[6] + 1] = state
    end
  end
end
