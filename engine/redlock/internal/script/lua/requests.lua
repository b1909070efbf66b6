
-- add makes a claim that waits, in no queue yet; nil if the session has too many. text is its want.
local function add(s, n, text)
  local count = s.fresh and 0 or read('HLEN', s.key) - 8
  for _, c in pairs(s.claims) do
    count = count + (c and c.fresh and 1 or 0)
  end
  if count >= MAX_CLAIMS and #everyClaim(s) >= MAX_CLAIMS then
    refuse(FULL, 'the session has too many claims')
    return nil
  end
  local c = { id = n, s = s, ref = s.id .. '.' .. digits(n), state = WAITING, since = now, vote = 0, stated = 0,
    lapsed = 0, lapseEnd = 0, relied = 0, reason = 0, text = '', counter = 0, finished = false, asks = {},
    write = true, fresh = true }
  setWant(c, s.key, text)
  s.claims[n] = c
  return c
end

-- sameRequest reports whether w repeats old, or amends its priority only.
local function sameRequest(old, w, amended)
  if w[2] < old[2] or w[2] > old[2] and not amended or #old[3] ~= #w[3] then
    return false
  end
  for i, name in ipairs(w[3]) do
    if old[3][i] ~= name then
      return false
    end
  end
  for i = 5, 16 do
    if old[i] ~= w[i] then
      return false
    end
  end
  return true
end

-- repeatClaim returns the state of a known claim, or amends it.
local function repeatClaim(c, text)
  local old, w = c.want, unpackRecord('request', text, 'nitnbnnnnnnsnsss')
  if not old or w[1] < old[1] then
    return { c }
  end
  if not sameRequest(old, w, w[1] > old[1]) then
    refuse(DIFFERS, 'claim ' .. digits(c.id) .. ' was requested otherwise')
    return { c }
  end
  if c.state == ENDED then
    return { c }
  end
  local waits = c.state == WAITING
  if w[1] ~= old[1] or w[2] ~= old[2] or w[4] < old[4] then
    if waits then
      dequeue(c)
    end
    old[1], old[2], old[4] = w[1], w[2], math.min(old[4], w[4])
    c.wantText, c.write = cmsgpack.pack(old), true
    if waits then
      enqueue(c)
    end
    touch(c)
  end
  return { c }
end

local function claim(s, text)
  local n = tonumber(id)
  local c = claimOf(s, n)
  if c then
    return repeatClaim(c, text)
  end
  if n < s.low then
    return refuse(NOT_KNOWN)
  end
  c = add(s, n, text)
  if not c then
    return
  end
  if c.want[5] and (#holders(c) > 0 or not isFirst(c)) then
    local state = describe(c)
    conclude(c, TIMED_OUT)
    c.finished = true
    local refused = describe(c)
    refused[15], refused[16] = state[15], state[16]
    reply[5][1] = refused
  else
    enqueue(c)
  end
  return { c }
end

local function returnVote(c, vote, favoured, number)
  if c.state ~= HELD or c.vote ~= vote or c.lapsed ~= 0 then
    return refuse(DIFFERS)
  end
  removeVote(c)
  c.state, c.since = WAITING, now
  enqueue(c)
  local s = favoured ~= '' and session(favoured)
  local f = s and claimOf(s, tonumber(number))
  if f and f ~= c and f.state == WAITING and #holders(f) == 0 and isFirst(f, c) then
    giveVote(f, counterOf(f) + 1)
  end
  if favoured ~= '' then
    return
  end
  settle(c)
  for _, name in ipairs(c.paths) do -- c counts again, so the next one may be first no more
    local next = headOf(path(name), c)
    if next then
      touch(next)
    end
  end
end

local function stamp(c, vote, fence)
  if c.state ~= HELD or c.vote ~= vote or counterOf(c) > fence then
    return refuse(DIFFERS)
  end
  setCounter(c, fence)
end

-- actOn executes Stamp, Return, End and Lapse.
local function actOn(s)
  local n = tonumber(id)
  local c = claimOf(s, n)
  if not c then
    if kind == STAMP or kind == RETURN or n < s.low then
      return refuse(NOT_KNOWN)
    end
    c = add(s, n, '')
    if not c then
      return
    end
  end
  local x = tonumber(a1)
  if kind == STAMP then
    stamp(c, x, tonumber(a2))
  elseif kind == RETURN then
    returnVote(c, x, a2, a3)
  elseif kind == END then
    if c.state ~= ENDED then
      finish(c, x)
    end
    makeSure(c)
    c.finished, c.write = true, true
  else
    lapse(c, x)
  end
  return { c }
end
